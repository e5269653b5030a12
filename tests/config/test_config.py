"""Benchmark files: what is accepted, and what each mistake is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tta_bench import config, grid
from tta_bench.cli import app
from tta_bench.commands.plan import plan
from tta_bench.config.protocols import PROTOCOLS
from tta_bench.config.smoke import shrunk
from tta_bench.errors import ConfigError, UserError

Write = Callable[..., Path]

BROKEN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "unknown top-level key": ({"model": []}, ["model", "unknown field", 'Did you mean "models"?']),
    "unknown method": (
        {"methods": ["tnet"]},
        ["methods[0]", 'unknown method "tnet"', 'Did you mean "tent"?'],
    ),
    "unknown parameter": (
        {"methods": ["source", {"use": "tent", "lrr": 1}]},
        ["methods[1].lrr", "unknown field", 'Did you mean "lr"? Fields: lr, '],
    ),
    "wrong type": ({"methods": [{"use": "tent", "lr": "fast"}]}, ["methods[0].lr", "'fast'", "a number"]),
    "truth value for a number": (
        {"methods": [{"use": "t3a", "filter_k": True}]},
        ["methods[0].filter_k", "not true or false", "a whole number"],
    ),
    "choice outside the list": (
        {"methods": [{"use": "lame", "affinity": "cosine"}]},
        ["methods[0].affinity", "one of knn, rbf, linear"],
    ),
    "severity": ({"stream": {"severity": 6}}, ["stream.severity", "6", "less than or equal to 5"]),
    "unknown corruption": (
        {"stream": {"corruptions": ["fogg"]}},
        ["stream.corruptions", 'unknown corruption "fogg"', 'Did you mean "fog"?'],
    ),
    "empty axis": ({"models": []}, ["models", "at least 1 item"]),
    "missing section": ({"models": None}, ["models", "list"]),
    "two rows of one name": (
        {"methods": [{"use": "tent", "lr": 1}, {"use": "tent", "lr": 2}]},
        ["methods", '2 entries are called "tent"', "its own `name:`"],
    ),
    "model and data do not fit": (
        {"models": ["vit-b"]},
        ["models[0]", "vit-b has 1000 classes, and data cifar10-mini has 10"],
    ),
    "path in name": ({"name": "../../etc"}, ["name", "letters, digits", "Rename it"]),
    "bad bits": ({"quantizers": [{"use": "uniform", "bits": "eight"}]}, ["quantizers[0]", "eight"]),
    "huge sweep": (
        {"methods": [{"use": "tent", "lr": list(range(100)), "momentum": list(range(100))}]},
        ["methods[0]", "more than 1000", "fewer values"],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_names_file_path_problem_and_remedy(case: str, write_yaml: Write) -> None:
    changes, expected = BROKEN[case]
    path = write_yaml(**changes)
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert isinstance(result.exception, UserError), result.output
    text = str(result.exception)
    for part in [str(path), *expected]:
        assert part in text, text


def test_all_mistakes_are_reported_at_once(write_yaml: Write) -> None:
    path = write_yaml(models=["vit-nano"], methods=["tnet", {"use": "tent", "lrr": 1}])
    with pytest.raises(ConfigError) as error:
        config.load(path)
    assert len(error.value.problems) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: [", "not valid YAML"),
        ("- a\n- b", "must be a mapping"),
        ("name: a\nname: b", 'key "name" is given twice'),
        ("a: &x [1]\nb: *x", "aliases"),
        ("name: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("", "must be a mapping"),
    ],
)
def test_what_is_not_a_benchmark_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=expected):
        config.load(path)


def test_a_missing_file_and_one_that_is_not_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        config.load(tmp_path / "none.yaml")
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        config.load(tmp_path / "x.yaml")


def test_a_list_is_a_sweep_with_a_name_for_each_value(write_yaml: Write) -> None:
    path = write_yaml(methods=[{"use": "t3a", "name": "T3A", "filter_k": [1, 20]}])
    names = [choice.name for choice in config.load(path).methods]
    assert names == ["T3A (filter_k=1)", "T3A (filter_k=20)"]


def test_numbers_that_yaml_reads_as_text_are_numbers(write_yaml: Write) -> None:
    path = write_yaml(methods=[{"use": "tent", "lr": "1e-3"}])
    assert config.load(path).methods[0].params == {"lr": 1e-3}


@pytest.mark.parametrize(
    ("override", "check"),
    [
        ("stream.rounds=7", lambda b: b.stream.rounds == 7),
        ("models=[vit-micro]", lambda b: b.models[0].use == "vit-micro"),
        ("data.corruption_seed=3", lambda b: b.data.params == {"corruption_seed": 3}),
        ("methods[2].lr=0.5", lambda b: b.methods[2].params == {"lr": 0.5}),
    ],
)
def test_overrides_reach_every_depth(override: str, check: Callable[..., bool], write_yaml: Write) -> None:
    assert check(config.load(write_yaml(), [override]))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("rounds", "path=value"),
        ("stream.rounds.x=1", "plain value"),
        ("methods[9].lr=1", "3 entries"),
        ("stream.roundz=1", "unknown field"),
    ],
)
def test_bad_overrides_are_explained(override: str, expected: str, write_yaml: Write) -> None:
    with pytest.raises(UserError, match=expected):
        config.load(write_yaml(), [override])


def test_presets_go_between_defaults_and_what_the_entry_says(write_yaml: Write) -> None:
    presets = [{"method": "tent", "family": "resnet", "set": {"lr": 0.5, "momentum": 0.1}}]
    path = write_yaml(methods=[{"use": "tent", "momentum": 0.2}], presets=presets)
    cell = grid.expand(config.load(path))[0]
    assert cell.method.params["lr"] == 0.5
    assert cell.method.params["momentum"] == 0.2
    plain = grid.expand(config.load(write_yaml(methods=["tent"])))[0]
    assert plain.method.params["lr"] == 2.5e-4, "the method's own preset for its family"


def test_a_wrong_preset_is_refused(write_yaml: Write) -> None:
    path = write_yaml(presets=[{"method": "tent", "set": {"lrr": 1}}])
    with pytest.raises(ConfigError, match=r"presets\[0\].set.lrr: unknown field"):
        grid.expand(config.load(path))


def test_include_and_exclude_choose_cells(write_yaml: Write) -> None:
    path = write_yaml(exclude=[{"method": "TENT", "bits": "W8A8"}], include=[{"model": "resnet*"}])
    cells = grid.expand(config.load(path))
    assert len(cells) == 5
    assert not [c for c in cells if c.labels.method == "TENT" and c.bits == "W8A8"]
    with pytest.raises(ConfigError, match="no cell is left"):
        grid.expand(config.load(write_yaml(include=[{"model": "vit*"}])))


def test_the_default_benchmark_is_the_grid_the_readme_promises() -> None:
    path = Path(__file__).parents[2] / "benchmark.yaml"
    benchmark = config.load(path)
    cells = grid.expand(benchmark)
    own = {"vit-micro": "ptq4vit", "resnet-micro": "mqbench", "vim-micro": "ptq4vm"}
    assert {(c.labels.model, c.quantizer.use) for c in cells} == {
        pair for model, quantizer in own.items() for pair in ((model, "fp32"), (model, quantizer))
    }
    methods = {c.method.use for c in cells}
    assert methods >= {"source", "bn-adapt", "t3a", "lame", "foa", "zoa", "tent"}
    for model, quantizer in own.items():
        mine = {c.method.use for c in cells if (c.labels.model, c.quantizer.use) == (model, quantizer)}
        # FOA on vim-micro would take the default run beyond three minutes.
        foa = set() if model == "vim-micro" else {"foa"}
        assert mine >= {"source", "t3a", "lame", "zoa"} | foa, "the comparison of the paper"
    assert all(c.method.params["k"] == 2 for c in cells if c.method.use == "foa")
    assert benchmark.stream.rounds == 10
    assert len(benchmark.stream.corruptions) == 15
    assert yaml.safe_load(path.read_text())["run"]["engine"] == "ray"


def test_micro_reduces_resets_and_rates_and_says_so(write_yaml: Write) -> None:
    stream = {"corruptions": ["fog"], "reset": {"every": 1000}, "adapt_every": 100}
    methods = ["source", {"use": "tent", "reset": {"every": 50}}]
    small = shrunk(config.load(write_yaml(methods=methods, stream=stream)))
    assert (small.stream.reset, small.stream.adapt_every, small.methods[1].reset) == ("every 5", 4, "every 5")
    assert list(small.reduced) == [
        "stream.reset is every 5, not every 1000",
        "stream.adapt_every is 4, not 100",
        "stream.rounds is 2, not 10",
        "stream.batch_size is 16, not 64",
        "reset of tent is every 5, not every 50",
    ]
    assert shrunk(config.load(write_yaml())).reduced == ()


def test_plan_and_validate_say_what_micro_has_changed(write_yaml: Write, no_bytes: None) -> None:
    file = write_yaml(
        stream={"protocol": "petta-20", "reset": {"every": 1000}, "corruptions": ["fog", "snow"]}
    )
    told = ["stream.reset is every 5, not every 1000", "stream.rounds is 2, not 20"]
    told += ["stream.batch_size is 16, not 64"]
    lines = [f"--micro: {text}." for text in told]
    planned = plan(file, micro=True)
    assert planned.data["reduced"] == told
    assert set(lines) <= set(planned.text.splitlines())
    validated = CliRunner().invoke(app, ["validate", str(file), "--micro"])
    assert validated.stderr.splitlines() == lines
    assert plan(file).data["reduced"] == []


def test_a_protocol_sets_what_the_file_does_not(write_yaml: Write) -> None:
    found = config.load(write_yaml(stream={"protocol": "rdumb", "batch_size": 8, "corruptions": ["fog"]}))
    assert (found.stream.reset, found.stream.batch_size) == ("every 1000", [8])
    ten = [f"cotta {number}" for number in range(10)]
    assert config.load(write_yaml(stream={"protocol": "cotta"})).stream.domain_order == ten


def test_rdumb_goes_with_any_other_protocol(write_yaml: Write) -> None:
    found = config.load(write_yaml(stream={"protocol": ["sar-bs1", "rdumb"]}))
    assert (found.stream.reset, found.stream.batch_size) == ("every 1000", [1])
    small = write_yaml(stream={"protocol": ["roid-mixed", "rdumb"]})
    assert [choice.use for choice in config.load(small).scenarios] == ["mixed"]
    with pytest.raises(ConfigError, match=r'stream\.protocol: unknown protocol "rdum"'):
        config.load(write_yaml(stream={"protocol": ["roid-mixed", "rdum"]}))


def test_micro_keeps_orders_that_differ_on_its_few_domains(write_yaml: Write) -> None:
    small = shrunk(config.load(write_yaml(stream={"protocol": "cotta"})))
    orders = [cell.domains for cell in grid.expand(small) if cell.method.use == "source"]
    assert len(orders) == 2 * len(set(orders)) == 2 * 3, "on two quantisations"
    assert small.reduced[0].startswith("stream.domain_order is cotta 0, cotta 1, cotta 2, not cotta 0,")


def test_micro_fills_a_window_between_two_resets(write_yaml: Write) -> None:
    stream = {"batch_size": 1, "window": 64, "reset": {"every": 1000}}
    small = shrunk(config.load(write_yaml(stream=stream)))
    assert (small.stream.window, small.stream.reset) == (16, "every 17")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_is_a_valid_stream(name: str, write_yaml: Write) -> None:
    assert config.load(write_yaml(stream={"protocol": name})).stream.protocol == [name]
