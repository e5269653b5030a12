"""The modules that are mutated, and the fast tests that are about each of them."""

from __future__ import annotations

TARGETS: dict[str, tuple[str, ...]] = {
    "tta_bench/statistics.py": ("tests/test_statistics.py",),
    "tta_bench/score.py": ("tests/test_score.py",),
    "tta_bench/store.py": ("tests/test_store.py",),
    "tta_bench/resume.py": ("tests/faults/test_resume.py",),
    "tta_bench/plan.py": ("tests/test_sharing.py", "tests/test_grid.py"),
    "tta_bench/feed.py": ("tests/test_features.py", "tests/test_sharing.py"),
}
# Tests that start Ray or other processes, in which there is no mutant, and those that take longest.
LEFT_OUT = (
    "tests/test_sharing.py::test_two_workers_share_the_domains_of_one_cell",
    "tests/test_sharing.py::test_tables_are_the_same_compiled_and_eager",
    "tests/test_sharing.py::test_tables_and_records_are_the_same_with_and_without_sharing[vit-micro]",
    "tests/faults/test_resume.py::test_every_method_goes_on_bit_for_bit[memo]",
    "tests/faults/test_resume.py::test_every_method_goes_on_bit_for_bit[foa]",
)
