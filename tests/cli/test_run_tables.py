"""`run --tables`, which `make run` calls: tables that fit, where the results are, and what to do next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.helpers.command import tta_bench

Write = Callable[..., Path]


def test_a_run_ends_with_tables_results_and_next_steps(write_yaml: Write, tmp_path: Path) -> None:
    file = write_yaml(methods=["source", "shift"], quantizers=["fp32"])
    outcome = tta_bench("run", file, "--engine", "local", "--results", tmp_path, "--tables")
    assert outcome.returncode == 0, outcome.stderr
    assert "at each round of adaptation" in outcome.stdout
    assert "\nCost, and mean accuracy" in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) <= 120
    *_, where, next_, report, latex, method = outcome.stderr.splitlines()
    assert str(tmp_path) in where
    assert next_ == "Next:"
    assert f"tta-bench report --results {tmp_path}" in report
    assert "tta-bench table --format latex" in latex
    assert "tta-bench new method" in method
