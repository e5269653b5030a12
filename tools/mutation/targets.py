"""The modules that are mutated, and the fast tests that are about each of them."""

from __future__ import annotations

TARGETS: dict[str, tuple[str, ...]] = {
    "tta_bench/statistics.py": ("tests/test_statistics.py",),
    "tta_bench/score.py": ("tests/test_score.py",),
    "tta_bench/identity.py": ("tests/test_identity_details.py",),
    "tta_bench/source_code.py": ("tests/test_identity_details.py",),
    "tta_bench/store.py": ("tests/test_results_folder.py",),
    "tta_bench/record_lines.py": ("tests/test_results_folder.py",),
    "tta_bench/folder_lock.py": ("tests/test_results_folder.py", "tests/test_checkpoint.py"),
    "tta_bench/checkpoint.py": ("tests/test_checkpoint.py",),
    "tta_bench/resume.py": ("tests/test_resume_details.py",),
    "tta_bench/writer.py": ("tests/test_writer.py",),
    "tta_bench/plan.py": ("tests/test_plan_details.py",),
    "tta_bench/feed.py": ("tests/test_feed.py",),
}
# Tests that start Ray, or several processes one after the other: too slow to run for every mutant.
LEFT_OUT = (
    "tests/test_sharing.py::test_two_workers_share_the_domains_of_one_cell",
    "tests/test_sharing.py::test_tables_are_the_same_compiled_and_eager",
)
