"""A layout in a package of its own: it is listed, builds its table, and needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command import tta_bench
from tests.helpers.report_results import DEMO, write

EXAMPLE = Path(__file__).parents[2] / "examples" / "tta-bench-worst-domain"


def test_the_example_is_short() -> None:
    assert len((EXAMPLE / "tta_bench_worst_domain.py").read_text().splitlines()) <= 25


def test_an_installed_layout_is_listed_and_makes_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip installs the example into a folder on the path of Python, with its entry point."""
    target = tmp_path / "installed"
    copy = tmp_path / "package"
    copy.mkdir()
    for file in EXAMPLE.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    install = ("-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", target, copy)
    subprocess.run([sys.executable, *map(str, install)], check=True, capture_output=True, timeout=120)
    write(DEMO, tmp_path / "results")
    where = ("table", "--results", tmp_path / "results", "--format", "csv")
    assert 'unknown layout "worst-domain"' in tta_bench(*where, "--layout", "worst-domain").stderr
    monkeypatch.syspath_prepend(target)
    assert "worst-domain" in tta_bench("list", "layouts").stdout
    assert "tta-bench-worst-domain 0.1" in tta_bench("list", "layouts", "--long").stdout
    shown = tta_bench(*where, "--layout", "worst-domain")
    assert shown.returncode == 0, shown.stderr
    header = shown.stdout.splitlines()[0].split(",")
    assert header[7:9] == ["worst", "accuracy"]


def test_layouts_need_no_torch() -> None:
    code = (
        "import sys\nfrom tta_bench.plugins import registry\n"
        "[registry.load('layouts', name) for name in registry.names('layouts')]\n"
        "print({'torch', 'ray'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
