"""Completion as a shell asks for it: with environment variables, in a process or in this one."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tta_bench import config
from tta_bench.cli import app, completion, schema_fields
from tta_bench.config.json_schema import SHIPPED
from tta_bench.config.parameters import describe_fields
from tta_bench.errors import UserError
from tta_bench.execution.run import OVERWRITE
from tta_bench.figures import FIGURES
from tta_bench.plugins import registry
from tta_bench.storage.manifest import MANIFEST
from tta_bench.tables import references

ROOT = Path(__file__).parents[2]
BENCHMARK = str(ROOT / "benchmark.yaml")


def request(line: str) -> dict[str, str]:
    """The environment in which bash asks for the last word of a line."""
    words = shlex.split(line)
    number = len(words) if line.endswith(" ") else len(words) - 1
    return {"_TTA_BENCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(number)}


def completed(line: str) -> list[str]:
    """What is offered for the last word of a line."""
    done = CliRunner().invoke(app, [], env=request(line), prog_name="tta-bench")
    assert done.exit_code == 0, done.output
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def names_of(texts: list[str]) -> set[str]:
    """The names in `name=` or `name=value`."""
    return {text.partition("=")[0] for text in texts}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tta-bench ta", ["table"]),
        ("tta-bench table --lay", ["--layout"]),
        ("tta-bench table --layout per", ["per-corruption"]),
        ("tta-bench table --layout ti", ["tidy"]),
        ("tta-bench table --format lo", ["longtable"]),
        ("tta-bench list met", ["methods"]),
        ("tta-bench list methods zo", ["zoa"]),
        ("tta-bench list nothing ", []),
        ("tta-bench list --long quantizers pt", ["ptq4vit", "ptq4vm"]),
        ("tta-bench check methods/zo", ["methods/zoa"]),
        ("tta-bench new ti", ["timm-model"]),
        ("tta-bench memory --model vit-m", ["vit-micro"]),
        ("tta-bench memory --method zo", ["zoa"]),
        ("tta-bench quantize --quantizer un", ["uniform"]),
        ("tta-bench quantize --model vit-b --set-data frost", ["frost_images="]),
        ("tta-bench recipes cos", ["cost"]),
        ("tta-bench figure par", ["pareto"]),
        ("tta-bench run x --engine ", ["ray", "local"]),
        ("tta-bench run x --overwrite ", list(OVERWRITE)),
        ("tta-bench run x --only method=zo", ["method=zoa"]),
        ("tta-bench run x -o stream.rou", ["stream.rounds="]),
        ("tta-bench run x -o run.engine", ["run.engine=ray", "run.engine=local"]),
    ],
)
def test_a_word_is_completed(line: str, expected: list[str]) -> None:
    assert completed(line) == expected


def test_values_written_here_are_those_of_the_commands() -> None:
    assert set(completion.FIGURES) == set(FIGURES)
    assert tuple(completion.OVERWRITE) == OVERWRITE
    assert schema_fields.SCHEMA == SHIPPED
    assert completed("tta-bench table --reference ") == references.names()
    assert completed("tta-bench compare --reference ") == references.names()


# -- parameters, from the schema -----------------------------------------------------------------------


@pytest.mark.parametrize("method", registry.built_in("methods"))
def test_parameters_of_a_method_are_those_of_its_class(method: str) -> None:
    offered = completed(f"tta-bench memory --model vit-b --method {method} --set ")
    own = {row["parameter"] for row in describe_fields(registry.load("methods", method))}
    assert names_of(offered) == own
    definitions = json.loads(schema_fields.SCHEMA.read_text("utf-8"))["$defs"]
    of_schema = definitions[f"methods.{method}"]["properties"]
    assert names_of(offered) == of_schema.keys() - schema_fields.NO_PARAMETERS


def test_named_values_are_offered_with_their_parameter() -> None:
    offered = completed("tta-bench memory --model vit-b --method tent --set ")
    assert {"lr=", "nesterov=true", "nesterov=false", "loss=entropy", "loss=gce"} <= set(offered)
    assert "loss=" not in offered, "there are no others"
    mixed = completed("tta-bench run x -o stream.corruptions")
    assert {"stream.corruptions=", "stream.corruptions=fog"} <= set(mixed)


def test_an_override_knows_the_plugins_of_its_file() -> None:
    assert completed(f"tta-bench run {BENCHMARK} -o methods[2].filt") == [
        "methods[2].filter_k=",
        "methods[2].filter_k=-1",
    ]
    assert completed(f"tta-bench run --quiet {BENCHMARK} -o data.frost") == ["data.frost_images="]
    assert completed(f"tta-bench table --plan {BENCHMARK} -o quantizers[1].bi") == ["quantizers[1].bits="]
    assert completed("tta-bench run nowhere.yaml -o methods[2].filt") == []


def test_a_scenario_of_a_file_has_its_parameters(write_yaml: Callable[..., Path], tmp_path: Path) -> None:
    file = write_yaml(stream={"scenario": ["continual", {"use": "markov"}]})
    assert "stream.scenario[1].max_state=" in completed(f"tta-bench plan {file} -o stream.scenario[1].max")
    broken = tmp_path / "broken.yaml"
    broken.write_text("methods: [")
    assert completed(f"tta-bench plan {broken} -o stream.rou") == ["stream.rounds="]


def refusal(override: str) -> str:
    """Why the default benchmark cannot have this override; empty if it can."""
    try:
        config.load(BENCHMARK, [override])
    except UserError as error:
        return str(error)
    return ""


def test_offered_overrides_are_fields_of_the_file() -> None:
    offered = completed(f"tta-bench run {BENCHMARK} -o ")
    named = [text for text in offered if not text.endswith("=") and ".use=" not in text]
    assert len(named) > 20
    assert not [text for text in named if "unknown field" in refusal(text)]
    assert "unknown field" in refusal("stream.nothing=1")


@pytest.mark.parametrize("shell", ["zsh", "fish", "powershell"])
def test_other_shells_show_what_a_parameter_means(shell: str) -> None:
    asked = {"_TYPER_COMPLETE_ARGS": "tta-bench memory --model vit-b --method tent --set momen"}
    asked |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_WORD_TO_COMPLETE": "momen"}
    done = CliRunner().invoke(
        app, [], env=asked | {"_TTA_BENCH_COMPLETE": f"complete_{shell}"}, prog_name="tta-bench"
    )
    assert "momentum=" in done.stdout
    assert "momentum of SGD; default" in done.stdout


# -- results folders, and the process ------------------------------------------------------------------


def test_benchmarks_of_a_results_folder(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).write_text("{}")
    for command in ("table", "status", "report"):
        assert set(completed(f"tta-bench {command} --results {tmp_path} --name ")) == {"first", "second"}
    assert completed(f"tta-bench table --results {tmp_path / 'nowhere'} --name ") == []


@pytest.mark.parametrize(
    "line",
    [
        "tta-bench ",
        "tta-bench table --layout ",
        "tta-bench table --format ",
        "tta-bench table --reference ",
        "tta-bench table --name ",
        "tta-bench memory --method zoa --set ",
        f"tta-bench run {BENCHMARK} -o ",
        "tta-bench recipes ",
        "tta-bench new ",
        "tta-bench check ",
    ],
)
def test_completion_imports_nothing_heavy(line: str) -> None:
    code = (
        "import sys\nfrom tta_bench.cli import app\n"
        "try:\n    app(prog_name='tta-bench')\nexcept SystemExit:\n    pass\n"
        "print({'torch', 'ray', 'timm', 'pandas'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | request(line),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "set()"


def test_bash_loads_and_uses_the_shown_lines(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "tta-bench"
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    script = (
        'eval "$(_TTA_BENCH_COMPLETE=source_bash tta-bench)"\n'
        "COMP_WORDS=(tta-bench table --layout per); COMP_CWORD=3\n"
        "_tta_bench_completion tta-bench\n"
        'echo "${COMPREPLY[@]}"'
    )
    command = ["bash", "--norc", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "per-corruption\n", done.stderr
