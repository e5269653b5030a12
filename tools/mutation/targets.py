"""The modules that are mutated, and the fast tests that are about each of them."""

from __future__ import annotations

TARGETS: dict[str, tuple[str, ...]] = {
    "tta_bench/tables/statistics.py": ("tests/tables/test_statistics.py",),
    "tta_bench/execution/cell/score.py": ("tests/execution/test_score.py",),
    "tta_bench/plugins/identity.py": ("tests/plugins/test_identity_details.py",),
    "tta_bench/plugins/source_code.py": ("tests/plugins/test_identity_details.py",),
    "tta_bench/storage/store.py": ("tests/storage/test_results_folder.py",),
    "tta_bench/storage/record.py": ("tests/storage/test_results_folder.py", "tests/storage/test_rounds.py"),
    "tta_bench/storage/manifest.py": ("tests/storage/test_results_folder.py",),
    "tta_bench/storage/lock.py": ("tests/storage/test_results_folder.py", "tests/storage/test_checkpoint.py"),
    "tta_bench/storage/checkpoints.py": ("tests/storage/test_checkpoint.py",),
    "tta_bench/execution/recorder.py": (
        "tests/execution/test_recorder.py",
        "tests/execution/test_start.py",
    ),
    "tta_bench/planning/sharing.py": ("tests/planning/test_tasks.py",),
    "tta_bench/planning/tasks.py": ("tests/planning/test_tasks.py",),
    "tta_bench/execution/stream_reader.py": ("tests/execution/test_stream_reader.py",),
}
# Tests that start Ray, or several processes one after the other: too slow to run for every mutant.
LEFT_OUT = (
    "tests/execution/test_sharing.py::test_two_workers_share_the_domains_of_one_cell",
    "tests/execution/test_sharing.py::test_tables_are_the_same_compiled_and_eager",
)
