"""The modules that are mutated, and the fast tests that are about each of them."""

from __future__ import annotations

TARGETS: dict[str, tuple[str, ...]] = {
    "tta_bench/statistics.py": ("tests/test_statistics.py",),
    "tta_bench/score.py": ("tests/test_score.py",),
}
