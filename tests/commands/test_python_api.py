"""`import tta_bench`: the functions of the command line, for a script or a notebook."""

from __future__ import annotations

import copy
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import tta_bench
from tests.conftest import SMALL
from tests.helpers.command import tta_bench as command
from tta_bench.errors import ConfigError, UserError


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of the small benchmark, given as a dict."""
    return tta_bench.run(SMALL, results=tmp_path_factory.mktemp("results"), quiet=True)


def test_importing_it_is_light() -> None:
    code = (
        "import sys, tta_bench\nfrom tta_bench import results\n"
        "heavy = {'torch', 'ray', 'timm', 'pandas'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there_and_no_module_takes_its_place() -> None:
    modules = {module.name for module in pkgutil.iter_modules(tta_bench.__path__)}
    assert not modules & set(tta_bench.__all__), "an imported submodule would replace the function"
    assert set(tta_bench.__all__) <= set(dir(tta_bench))
    for name in tta_bench.__all__:
        assert callable(getattr(tta_bench, name))
    with pytest.raises(AttributeError, match="has no attribute 'rune'"):
        _ = tta_bench.rune


# -- a benchmark ------------------------------------------------------------------------------------


def test_a_path_a_dict_and_a_benchmark_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    given = copy.deepcopy(SMALL)
    checked = tta_bench.benchmark(given, limit=8)
    plans = [tta_bench.plan(source, limit=8).data for source in (path, str(path), given, checked)]
    assert plans[0] == plans[1] == plans[2] == plans[3]
    assert given == SMALL, "the caller's dict is not changed"
    assert checked.stream.limit == 8
    assert repr(checked) == "<Benchmark small: 1 model × 2 quantizers × 3 methods × 1 seed on cifar10-mini>"


def test_changes_are_those_of_the_command_line() -> None:
    found = tta_bench.benchmark(SMALL, override=["stream.rounds=3", "methods[2].lr=1e-2"], micro=True)
    assert (found.name, found.stream.rounds, found.methods[2].params) == ("small-micro", 2, {"lr": 0.01})
    assert tta_bench.plan(SMALL, only=["method=tent"]).data["cells"] == 2


@pytest.mark.parametrize(
    ("changes", "limit", "message"),
    [
        (
            {"methods": ["tnet"]},
            None,
            'benchmark: methods\\[0\\]: unknown method "tnet". Did you mean "tent"',
        ),
        ({"steam": {}}, None, 'benchmark: steam: unknown field. Did you mean "stream"'),
        ({}, 0, "benchmark: stream.limit: 0 does not fit"),
    ],
)
def test_mistakes_are_the_errors_of_the_command_line(changes: Any, limit: int | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tta_bench.benchmark(SMALL | changes, limit=limit)


def test_a_checked_benchmark_takes_a_limit_and_no_overrides() -> None:
    checked = tta_bench.benchmark(SMALL)
    assert tta_bench.benchmark(checked, limit=3).stream.limit == 3
    with pytest.raises(UserError, match="at least one image"):
        tta_bench.benchmark(checked, limit=0)
    with pytest.raises(UserError, match="already checked"):
        tta_bench.benchmark(checked, override=["stream.rounds=1"])


# -- results ----------------------------------------------------------------------------------------


def test_a_run_says_how_it_ended(ran: Any) -> None:
    assert ran.states == {"done": 5, "unsupported": 1}
    assert repr(ran) == f"small: ran 6; 5 done, 1 unsupported. Results in {ran.folder}."
    assert not ran.failed
    again = tta_bench.run(SMALL, results=ran.folder.parent, quiet=True)
    assert repr(again).startswith("small: nothing left to run;")


def test_a_table_shows_itself_as_text_html_latex_and_frame(ran: Any) -> None:
    table = tta_bench.results(ran.folder.parent).table("cost")
    shown = command("table", "--results", ran.folder.parent, "--layout", "cost")
    assert repr(table) == shown.stdout.rstrip("\n")
    assert table._repr_html_().startswith('<table class="tta-bench cost">')
    assert table.to_latex() == table.render("tex")
    assert "\\begin{table" in table.to_latex()
    frame = table.to_frame()
    assert frame.loc[("resnet-micro FP32", "TENT"), "backwards"] == 1.0
    assert pd.isna(frame.loc[("resnet-micro W8A8", "TENT"), "forwards"])
    assert table.to_frame("rank").shape == frame.shape
    assert any("needs gradients" in note for note in table.notes)
    with pytest.raises(UserError, match='unknown layout "cots"'):
        tta_bench.results(ran.folder.parent).table("cots")


def test_results_know_their_frame_their_status_and_what_they_do_not_show(ran: Any) -> None:
    found = ran.results
    assert isinstance(found.frame, pd.DataFrame)
    assert found.frame["key"].nunique() == 6
    told = json.loads(command("status", "--results", ran.folder.parent, "--json").stdout)
    assert found.status().data == told
    assert repr(found) == f"{ran.folder}: 6 cells"
    with pytest.raises(UserError, match='no benchmark "smal"'):
        tta_bench.results(ran.folder.parent, "smal")
    with pytest.raises(UserError, match="no results here"):
        tta_bench.results(ran.folder)


def test_a_comparison_is_that_of_the_command_line(ran: Any) -> None:
    told = command("compare", "--results", ran.folder.parent)
    assert repr(ran.results.compare("zoa-mm25")).rstrip() == told.stdout.rstrip()


def test_memory_takes_parameters_of_the_method() -> None:
    found = tta_bench.memory("vit-micro", "t3a", params={"filter_k": 5}, batch_size=4)
    words = ["memory", "--model", "vit-micro", "--method", "t3a", "--set", "filter_k=5", "--batch-size", "4"]
    assert json.loads(command(*words, "--json").stdout) == found.data
    assert f"memory_mib: {found.data['memory_mib']}" in repr(found)
    with pytest.raises(UserError, match="filter_kk: unknown field"):
        tta_bench.memory("vit-micro", "t3a", params={"filter_kk": 5})
