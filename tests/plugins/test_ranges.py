"""Values are checked where they are declared: every field has its range, in YAML and in Python alike."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from tests.helpers.tools import load_tool
from tta_bench.api import (
    BitRange,
    Bits,
    Fraction,
    Ge,
    Method,
    Positive,
    Quantizer,
    Source,
    Target,
)
from tta_bench.api.method import passes_per_batch
from tta_bench.cli import app
from tta_bench.config import load
from tta_bench.config.parameters import check_params
from tta_bench.errors import ConfigError, Unsupported, UserError
from tta_bench.grid import expand
from tta_bench.plugins import registry
from tta_bench.plugins.ranges import field_types
from tta_bench.plugins.search_space import ends
from tta_bench_methods._shared.gradient import GradientMethod
from tta_bench_methods.foa import Foa
from tta_bench_quantizers.adalog.quantizer import AdaLog
from tta_bench_quantizers.uniform import UniformQuantizer

GROUPS = ("methods", "quantizers", "models", "data")
PLUGINS = [(group, name) for group in GROUPS for name in registry.names(group)]
FIELDS = [
    (group, name, field) for group, name in PLUGINS for field in field_types(registry.load(group, name))
]
Write = Callable[..., Path]


# -- every plugin, every field -----------------------------------------------------------------------


def edges(schema: Any) -> Iterator[tuple[Any, bool]]:
    """Values at and just beyond the bounds of a field, and whether it takes them."""
    for part in schema.get("anyOf", [schema]):
        whole = part.get("type") == "integer"
        for bound, down in (("minimum", True), ("maximum", False)):
            if bound in part:
                yield part[bound], True
                yield beyond(part[bound], whole, down), False
        for bound, down in (("exclusiveMinimum", False), ("exclusiveMaximum", True)):
            if bound in part:
                yield part[bound], False
                yield beyond(part[bound], whole, down), True
        yield from ((value, True) for value in part.get("enum", [part["const"]] if "const" in part else []))
        if "enum" in part or "pattern" in part:
            yield "no such value", False


def beyond(bound: float, whole: bool, down: bool) -> float:
    """The next number below or above a bound."""
    if whole:
        return bound - 1 if down else bound + 1
    return math.nextafter(bound, -math.inf if down else math.inf)


@pytest.mark.parametrize(("group", "name", "field"), FIELDS)
def test_a_field_takes_what_its_range_says_and_nothing_beyond(group: str, name: str, field: str) -> None:
    cls = registry.load(group, name)
    kind = field_types(cls)[field]
    for value, taken in edges(kind.schema):
        _, problems = check_params(cls, {field: value}, "x")
        of_field = [problem for problem in problems if problem.path == f"x.{field}"]
        assert (not of_field) == taken, (value, problems)  # a value in its range may still not fit others
        if not taken:
            assert f"{value!r} does not fit: it must be " in of_field[0].text
            with pytest.raises(ValueError, match="does not fit"):
                cls(**{field: value})


@pytest.mark.parametrize(("group", "name", "field"), FIELDS)
def test_every_number_has_a_bound(group: str, name: str, field: str) -> None:
    schema = field_types(registry.load(group, name))[field].schema
    for part in schema.get("anyOf", [schema]):
        if part.get("type") in ("integer", "number"):
            bounds = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "const", "enum"}
            assert bounds & part.keys()


@pytest.mark.parametrize(("group", "name"), PLUGINS)
def test_defaults_have_their_types(group: str, name: str) -> None:
    """A default of another type than its field's would make another key than the same value given."""
    cls = registry.load(group, name)
    made, defaults = cls(), {field.name: field.default for field in dataclasses.fields(cls)}
    assert json.dumps({field: getattr(made, field) for field in defaults}) == json.dumps(defaults)


@pytest.mark.parametrize("name", registry.names("methods"))
def test_presets_and_search_spaces_are_within_the_ranges(name: str) -> None:
    cls = registry.load("methods", name)
    for model in registry.names("models"):
        family = registry.load("models", model).family
        for bits in ("FP32", "W8A8", "W6A6", "W4A4", "W2A4"):
            cls(**cls.presets(Target(model, family, bits)))
    for parameter, space in cls.search_space.items():
        for end in ends(space):
            assert not check_params(cls, {parameter: end}, "search")[1]


# -- the cases that gave numbers without a word, or a traceback ----------------------------------------

NAMED = {
    ("quantizers", "uniform", "edge_bits", 16): "it must be from 2 to 8.",
    ("quantizers", "uniform", "bits", "W16A16"): "it must be a bit-width from W2A2 to W8A8.",
    ("quantizers", "fp32", "bits", "W8A8"): "it must be FP32.",
    ("quantizers", "adalog", "bits", "banana"): "it must be a bit-width from W2A2 to W8A8.",
    ("quantizers", "ptq4vit", "rounds", 0): "it must be at least 1.",
    ("quantizers", "ptq4vit", "candidates", 1): "it must be at least 2.",
    ("quantizers", "adalog", "recon_images", 0): "it must be at least 1.",
    ("methods", "t3a", "filter_k", 0): "it must be -1 or a whole number of at least 1.",
    ("methods", "zoa", "temperature", 0): "it must be greater than 0.",
    ("methods", "eata", "fisher_images", 0): "it must be at least 1.",
    ("methods", "lame", "k", 0): "it must be at least 1.",
    ("methods", "foa", "sigma", 0): "it must be greater than 0.",
    ("methods", "foa", "interval", 1): "it must be 0 or a whole number of at least 2.",
    ("methods", "deyo", "tiles", 0): "it must be at least 1.",
    ("methods", "cotta", "views", 0): "it must be at least 1.",
    ("methods", "memo", "views", 0): "it must be at least 1.",
    ("methods", "tent", "momentum", 1): "it must be at least 0 and less than 1.",
    ("methods", "tent", "lr", "fast"): "it must be a number of at least 0.",
    ("methods", "tent", "lr", math.inf): "it is not finite, and must be a number of at least 0.",
    ("methods", "tent", "nesterov", 3): "it must be true or false.",
    ("methods", "bn-adapt", "variant", "tset"): "it must be one of test, alpha, prior, cumulative, ema.",
    ("data", "folder", "source_count", 0): "it must be at least 1.",
    ("models", "timm", "classes", -1): "it must be at least 0.",
} | {
    ("methods", name, "lr", -1): "it must be at least 0."
    for name in registry.names("methods")
    if "lr" in field_types(registry.load("methods", name))
}


@pytest.mark.parametrize("case", NAMED, ids=lambda case: " ".join(map(str, case[1:])))
def test_place_problem_and_range(case: tuple[str, str, str, Any]) -> None:
    group, name, field, value = case
    _, (problem,) = check_params(registry.load(group, name), {field: value}, f"{group}[2]")
    assert str(problem) == f"{group}[2].{field}: {value!r} does not fit: {NAMED[case]}"


def test_a_truth_value_is_no_number() -> None:
    _, (problem,) = check_params(registry.load("methods", "lame"), {"k": True}, "methods[0]")
    wanted = "methods[0].k: True does not fit: it must be a whole number of at least 1, not true or false."
    assert str(problem) == wanted


def test_a_file_with_values_out_of_range_is_refused_with_all_of_them(write_yaml: Write) -> None:
    path = write_yaml(
        quantizers=[{"use": "adalog", "bits": "banana"}],
        methods=[{"use": "foa", "sigma": [0, -1]}, {"use": "lame", "k": 0}],
    )
    outcome = CliRunner().invoke(app, ["validate", str(path)])
    assert isinstance(outcome.exception, ConfigError)
    places = [problem.path for problem in outcome.exception.problems]
    assert places == ["quantizers[0].bits", "methods[0].sigma", "methods[0].sigma", "methods[1].k"]


def test_presets_of_a_file_are_checked_too(write_yaml: Write) -> None:
    path = write_yaml(presets=[{"method": "tent", "set": {"lr": -1}}])
    with pytest.raises(ConfigError, match=r"presets\[0\].set.lr: -1 does not fit: it must be at least 0"):
        expand(load(path))


def test_values_that_fit_alone_but_not_with_a_preset(write_yaml: Write) -> None:
    path = write_yaml(methods=[{"use": "cotta", "momentum": 0}])
    expected = 'method "cotta" on resnet-micro FP32, with presets: nesterov needs a momentum greater than 0.'
    with pytest.raises(UserError, match=expected):
        expand(load(path))


# -- in Python, too ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"sigma": 0}, {"k": 1}, {"interval": 1}, {"lam": -1.0, "prompts": -1}])
def test_construction_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="does not fit: it must be") as error:
        Foa(**wrong)
    assert all(f"{field}: " in str(error.value) for field in wrong)


def test_fields_fit_before_a_plugin_checks_them_itself() -> None:
    """AdaLog's own `__post_init__` did not call its base's: `bits: banana` was a traceback later on."""

    @dataclass
    class Careless(Quantizer):
        bits: Annotated[str, BitRange((2, 8), (2, 8))] = "W8A8"

        def __post_init__(self) -> None:
            self.weight_bits = Bits.parse(self.bits).weight

    assert Careless("w4a8").weight_bits == 4
    with pytest.raises(ValueError, match="bits: 'banana' does not fit"):
        Careless("banana")
    with pytest.raises(ValueError, match="bits: 'banana' does not fit"):
        AdaLog(bits="banana")


def test_a_range_outlives_a_bare_redeclaration() -> None:
    @dataclass
    class Mine(GradientMethod):
        lr: float = 1.0

        def adapt(self, x: Tensor) -> Tensor:
            return x

    @dataclass
    class Scheme(Quantizer):
        bits: str = "w8a32"

    with pytest.raises(ValueError, match="lr: -1 does not fit"):
        Mine(lr=-1)
    assert Scheme().bits == "W8A32"
    with pytest.raises(ValueError, match="a bit-width from W1A1 to FP32"):
        Scheme("W64A8")


def test_a_frozen_plugin_and_ranges_of_ones_own() -> None:
    @dataclass(frozen=True)
    class Frozen(Method):
        share: Fraction = 0.5
        steps: Annotated[int, Ge(3)] = 3
        names: tuple[str, ...] = ()

        def reset(self) -> None: ...

    made = Frozen(share=1, names=["a", "b"])  # type: ignore[arg-type]
    assert (made.share, type(made.share), made.names) == (1.0, float, ("a", "b"))
    with pytest.raises(ValueError, match="steps: 2 does not fit: it must be at least 3"):
        Frozen(steps=2)
    with pytest.raises(ValueError, match="names: "):
        Frozen(names=[1])  # type: ignore[arg-type]


def test_a_field_type_that_nobody_understands_is_named() -> None:
    @dataclass
    class Odd(Method):
        what: "Unheard" = 1  # type: ignore[name-defined]  # noqa: F821, UP037

        def reset(self) -> None: ...

    _, (problem,) = check_params(Odd, {"what": 1}, "methods[0]")
    assert "Odd: the type of a field cannot be understood: name 'Unheard' is not defined" in str(problem)


def test_tiles_finer_than_pixels_are_unsupported() -> None:
    deyo = registry.load("methods", "deyo")
    model = registry.load("models", "vit-micro")().skeleton()
    assert deyo(tiles=32).unsupported(model) is None
    assert "cuts images into 33 tiles a side" in deyo(tiles=33).unsupported(model)


# -- one value, one spelling ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "name", "one", "other"),
    [
        ("quantizers", "uniform", {"bits": "w8a8"}, {"bits": "W8A8"}),
        ("quantizers", "uniform", {"bits": "W8A08"}, {}),
        ("quantizers", "fp32", {"bits": "fp32"}, {}),
        ("quantizers", "fp32", {"bits": "W32A32"}, {}),
        ("methods", "bn-adapt", {"prior": 16}, {}),
        ("methods", "tent", {"lr": "1e-3"}, {"lr": 0.001}),
    ],
)
def test_one_value_makes_one_key(
    group: str, name: str, one: dict[str, Any], other: dict[str, Any], write_yaml: Write
) -> None:
    cls = registry.load(group, name)
    assert json.dumps(vars(cls(**one)), default=str) == json.dumps(vars(cls(**other)), default=str)
    keys = []
    for params in (one, other):
        rest = {"quantizers": ["fp32"], "methods": ["source"]}
        path = write_yaml(**rest | {group: [{"use": name, **params}]})
        keys += [cell.key for cell in expand(load(path))]
    assert len(set(keys)) == 1


# -- costs and calibration images ----------------------------------------------------------------------


def test_a_cost_in_words_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(UserError, match=r"Mine: `cost` is not read\. Write the passes of a batch as two"):

        class Mine(Method):
            cost = "K/0"


def test_a_cost_that_depends_on_parameters_is_read_when_it_is_needed() -> None:
    @dataclass
    class Mine(Method):
        k: Positive = 2.0

        def passes(self) -> tuple[int, int]:
            return (round(self.k) if self.k < 9 else self.k), 0  # type: ignore[return-value]

        def reset(self) -> None: ...

    assert passes_per_batch(Mine(4)) == (4, 0)
    with pytest.raises(UserError, match=r"Return two whole numbers, e\.g\. \(2, 1\)"):
        passes_per_batch(Mine(9))
    costs = {name: registry.load("methods", name)().passes() for name in registry.names("methods")}
    assert (costs["cotta"], costs["deyo"], costs["memo"]) == ((3, 1), (2, 1), (65, 64))


def test_no_clean_images_is_a_reason_not_a_traceback() -> None:
    none = torch.empty(0, 3, 32, 32)
    for name in registry.names("quantizers"):
        scheme = registry.load("quantizers", name)()
        if scheme.calibration_images:
            with pytest.raises(Unsupported, match="calibration needs clean images"):
                scheme.calibration_set(none)
    assert len(registry.load("quantizers", "fp32")().calibration_set(none)) == 0
    assert (
        len(UniformQuantizer().calibration_set(torch.empty(100, 3, 32, 32)))
        == UniformQuantizer.calibration_images
    )
    model = registry.load("models", "vit-micro")().build()
    for name in ("zoa", "foa", "shift", "eata"):
        method = registry.load("methods", name)()
        with pytest.raises(Unsupported, match="needs clean images, and the data has none"):
            method.setup(copy.deepcopy(model), Source(none))


# -- where ranges are shown ----------------------------------------------------------------------------


def test_list_shows_the_ranges() -> None:
    long = CliRunner().invoke(app, ["list", "methods", "--long"]).output
    assert any(line.split() == ["t3a", "filter_k", "20", "-1", "or", "≥", "1"] for line in long.splitlines())
    rows = json.loads(CliRunner().invoke(app, ["list", "quantizers", "--long", "--json"]).output)
    uniform = next(row for row in rows["quantizers"] if row["name"] == "uniform")
    edge_bits = next(field for field in uniform["parameters"] if field["parameter"] == "edge_bits")
    assert (edge_bits["default"], edge_bits["range"]) == (8, "2 … 8")
    assert edge_bits["schema"] == {"type": "integer", "minimum": 2, "maximum": 8}


def test_the_documentation_has_the_ranges() -> None:
    tool = load_tool("parameter_tables")
    for group, page in tool.PAGES.items():
        assert "`lr` ≥ 0" in tool.table("methods")
        assert page.read_text("utf-8") == tool.page(group), "run `python tools/parameter_tables.py`"
        assert tool.table(group) in page.read_text("utf-8")
