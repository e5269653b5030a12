"""`python -m tta_bench.cli`."""

from __future__ import annotations

from tta_bench.cli import main

main()
