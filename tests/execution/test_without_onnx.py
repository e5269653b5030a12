"""Without the extra tta-bench[onnx] everything works but the engine that needs it, and that one says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tta_bench import load_results

Write = Callable[..., Path]
HIDDEN = """
import importlib.machinery

find_spec = importlib.machinery.PathFinder.find_spec


def without_onnx(name, path=None, target=None):
    return None if name.partition(".")[0] in ("onnx", "onnxruntime") else find_spec(name, path, target)


importlib.machinery.PathFinder.find_spec = without_onnx
"""
HINT = "run `pip install tta-bench[onnx]`"
# One process for all commands: importing PyTorch takes seconds. It prints exit code and output of each.
PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from tta_bench import cli

def called(words):
    sys.argv, text, code = ["tta-bench", *words], io.StringIO(), 0
    with redirect_stdout(text), redirect_stderr(text):
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
    return [code, text.getvalue()]

print(json.dumps([called(words) for words in json.loads(sys.argv[1])]))
"""


@pytest.fixture
def without_onnx(tmp_path: Path) -> Callable[[list[list[str]]], list[tuple[int, str]]]:
    """Runs commands in a process that finds neither onnx nor onnxruntime."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(HIDDEN)
    paths = [str(tmp_path / "hidden"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}

    def run(commands: list[list[str]]) -> list[tuple[int, str]]:
        words = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [(code, " ".join(text.split())) for code, text in json.loads(done.stdout.splitlines()[-1])]

    return run


def test_every_command_works_or_says_how_to_install_the_extra(
    write_yaml: Write, tmp_path: Path, without_onnx: Callable[[list[list[str]]], list[tuple[int, str]]]
) -> None:
    engines = [{"use": "uniform", "engine": name} for name in ("torch-int8", "onnxruntime")]
    path = str(write_yaml(models=["vit-micro"], quantizers=engines, methods=["source"]))
    results, network = ["--results", str(tmp_path / "results")], str(tmp_path / "network")
    micro = ["--model", "vit-micro"]
    found = without_onnx(
        [
            ["list"],
            ["validate", path],
            ["plan", path],
            ["run", path, *results],
            ["table", *results, "--layout", "engines"],
            ["export", *micro, "--output", network],
            ["quantize", *micro, "--quantizer", "uniform", "--engine", "onnxruntime"],
            ["quantize", *micro, "--quantizer", "uniform", "--engine", "torch-int8"],
        ]
    )
    assert [code for code, _ in found] == [0, 0, 0, 0, 0, 2, 2, 0], found
    _, _, plan, _, table, export, quantize, _ = (text for _, text in found)
    for text in (plan, table, export, quantize):
        assert HINT in text
    assert not Path(network).exists()
    assert set(load_results(tmp_path / "results")["status"]) == {"ok", "unsupported"}
