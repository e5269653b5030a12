"""Calls `sys.exit` when it is imported, as scripts without `if __name__ == "__main__"` do."""

from __future__ import annotations

import sys

sys.exit("usage: exits_at_import.py INPUT OUTPUT")
