"""Waits for something that never comes when it is imported."""

from __future__ import annotations

import threading

threading.Event().wait(3600)
