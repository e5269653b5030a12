"""The references: what each number is of, how it was made, and which cells of ours it belongs to."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.helpers.command import tta_bench
from tta_bench.config.parameters import check_params
from tta_bench.corruptions.sets import IMAGENET_C_15
from tta_bench.models import weights as state_dicts
from tta_bench.models.cifar import classifiers
from tta_bench.models.cifar.classifiers import CifarModel
from tta_bench.models.torchvision import vit as torchvision
from tta_bench.plugins import registry
from tta_bench.tables.build import build
from tta_bench.tables.compare import Comparison, Tolerance, compare, summarize
from tta_bench.tables.references import load, names
from tta_bench.tables.references.files import FOLDER
from tta_bench.tables.references.reference import Citation, Identity, Published, Reference

OWN = registry.built_in("references")
VIT = {"model_plugin": "vit-b", "model": "ViT-B"}
TORCHVISION = {"model_plugin": "vit-b-torchvision", "model": "ViT-B torchvision"}
ROID = {
    "optimizer": "sgd",
    "lr": 0.00025,
    "nesterov": True,
    "source_momentum": 0.99,
    "prior_correction": True,
}


def published(name: str, **facts: Any) -> Published:
    """The one number of a reference with these facts."""
    rows = [row for row in load(name).rows if all(getattr(row, k) == v for k, v in facts.items())]
    assert len(rows) == 1, rows
    return rows[0]


# -- descriptions ----------------------------------------------------------------------------------


def test_the_references_are_registered() -> None:
    expected = {"zoa-mm25", "foa", "neo", "fozo", "pea", "mariodoebler", "note", "petta", "embedded"}
    assert expected <= set(names())


@pytest.mark.parametrize("name", OWN)
def test_every_number_is_of_plugins_that_exist_with_parameters_that_they_have(name: str) -> None:
    cells = {json.dumps(_plugins(row), sort_keys=True): row for row in load(name).rows}
    for row in cells.values():
        wanted = row.wanted
        for group, use, params in _plugins(row):
            assert use in registry.names(group), (row, group, use)
            if params:
                assert check_params(registry.load(group, use), params, "")[1] == [], row
        assert wanted.model or wanted.missing, "a network without a plugin says why"
        assert wanted.images > 0
        assert row.setting.protocol
        assert row.setting.source
        assert row.setting.confidence
        assert row.lineage
        assert row.layout in ("", *registry.names("layouts"))


def _plugins(row: Published) -> list[tuple[str, str, dict[str, Any]]]:
    """The plugins that a number names, with their group and parameters."""
    wanted = row.wanted
    params = {k.removeprefix("scenario."): v for k, v in wanted.stream.items() if k.startswith("scenario.")}
    found = [("methods", wanted.method, dict(wanted.settings))]
    found += [("data", use, {}) for use in sorted(wanted.data)]
    found += [("models", wanted.model, dict(wanted.weights))] if wanted.model else []
    found += [("models", use, {}) for use in sorted(wanted.other_weights)]
    scenario = wanted.stream.get("scenario")
    return found + ([("streams", scenario, params)] if scenario else [])


@pytest.mark.parametrize(
    ("name", "facts", "value"),
    [
        ("foa", {"table": "table 2", "method": "FOA", "column": "average"}, 66.3),
        ("foa", {"table": "memory", "method": "TENT"}, 5165),
        ("neo", {"table": "imagenet-c", "method": "NEO", "column": "contrast"}, 58.2),
        ("neo", {"table": "imagenet-c", "method": "NEO", "column": "average"}, 59.2),
        ("fozo", {"method": "FOZO", "metric": "accuracy", "table": "readme"}, 59.52),
        ("fozo", {"method": "ZOA", "metric": "memory_mib"}, 859),
        ("pea", {"table": "batch of one"}, 61.6),
        ("mariodoebler", {"table": "continual imagenet-c", "model": "ResNet-50", "method": "ROID"}, 45.5),
        ("mariodoebler", {"table": "mixed imagenet-c", "model": "ResNet-50", "method": "LAME"}, 4.9),
        ("mariodoebler", {"table": "correlated imagenet-c", "method": "ROID"}, 83.2),
        ("mariodoebler", {"table": "continual cifar10-c", "method": "BN"}, 79.6),
        ("note", {"table": "correlated", "method": "NOTE"}, 78.9),
        ("petta", {"table": "imagenet-c", "method": "PeTTA"}, 39.5),
    ],
)
def test_named_numbers(name: str, facts: dict[str, Any], value: float) -> None:
    assert published(name, **facts).value == value


@pytest.mark.parametrize(
    ("name", "sha256"),
    [
        ("foa", "664f7eb9005623e0"),
        ("fozo", "22207ff6fcea8ab5"),
        ("mariodoebler", "f585eab69a0de511"),
        ("neo", "aee9450197ffb33f"),
        ("note", "f071396fe8cac962"),
        ("pea", "19bb2e6a84a91629"),
        ("petta", "a33ae73a65507e89"),
        ("zoa_mm25", "83aec824179c3393"),
    ],
)
def test_every_digit_is_the_one_that_was_compared_with_the_publication(name: str, sha256: str) -> None:
    """Change a hash only together with a look at the publication, and only if it prints the new numbers."""
    text = (FOLDER / f"{name}.csv").read_text(encoding="utf-8")
    assert hashlib.sha256(text.encode()).hexdigest().startswith(sha256)


def test_every_file_of_numbers_has_a_hash() -> None:
    (mark,) = test_every_digit_is_the_one_that_was_compared_with_the_publication.pytestmark
    assert sorted(name for name, _ in mark.args[1]) == sorted(path.stem for path in FOLDER.glob("*.csv"))


@pytest.mark.parametrize("name", ["mariodoebler", "note", "petta"])
def test_errors_become_accuracies_with_the_same_digits(name: str) -> None:
    for row in load(name).rows:
        assert row.error
        assert (row.metric, row.half_step) == ("accuracy", 0.05)
        assert row.value == round(row.value, 1)
    assert "errors in %" in tta_bench("list", "references", name).stdout


@pytest.mark.parametrize("name", ["foa", "neo"])
def test_averages_are_those_of_the_numbers_beside_them(name: str) -> None:
    rows = [row for row in load(name).rows if row.column in (*IMAGENET_C_15, "average")]
    for method in {row.method for row in rows if row.column != "average"}:
        own = {
            row.column: row
            for row in rows
            if (row.method, row.table) in ((method, "table 2"), (method, "imagenet-c"))
        }
        mean, average = sum(own[column].value for column in IMAGENET_C_15) / 15, own["average"]
        assert abs(mean - average.value) < 0.0501 or f"average {mean:.2f}" in average.note, (method, mean)


# -- matching --------------------------------------------------------------------------------------


def cell(**changes: Any) -> Identity:
    """ROID on ResNet-50 as mariodoebler runs it, with changes."""
    stream = {"batch_size": 64, "order": "aligned", "model.use": "resnet-50", "model.weights": "auto"}
    stated = {**stream, "model.stride": "v1.5"} | changes.pop("stated", {})
    facts = {"data": "imagenet-c", "model": "resnet-50", "bits": "FP32", "method": "roid", "settings": ROID}
    return Identity(**(facts | {"reset": "never", "stated": stated} | changes))


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({}, 45.5),
        ({"stated": {"order": "shuffled"}}, 45.5),
        ({"stated": {"scenario": "mixed"}}, 30.5),
        ({"data": "imagenet"}, 45.5),
        ({"stated": {"order": "sequential"}}, None),
        ({"stated": {"batch_size": 1}}, None),
        ({"stated": {"scenario": "correlated", "scenario.sampler": "sorted"}}, None),
        ({"stated": {"domain_order": "cotta 0"}}, None),
        ({"stated": {"adapt_every": 10}}, None),
        ({"stated": {"model.weights": "random"}}, None),
        ({"model": "resnet-50-timm"}, None),
        ({"reset": "domain"}, None),
        ({"settings": ROID | {"lr": 0.001}}, None),
        ({"settings": {}}, None),
    ],
)
def test_a_cell_is_matched_by_weights_parameters_and_stream(
    changes: dict[str, Any], value: float | None
) -> None:
    found = load("mariodoebler").find(cell(**changes), Citation("accuracy", "average", 1))
    assert (None if found is None else found.value) == value


def test_weights_from_a_path_are_not_known_to_be_the_published_ones() -> None:
    own = cell()
    stated = {name: value for name, value in own.stated.items() if name != "model.weights"}
    wanted = published("mariodoebler", table="continual imagenet-c", model="ResNet-50", method="ROID").wanted
    (reason,) = wanted.differences(own._replace(stated=stated)) or ()
    assert reason == "weights a file of your own, published with auto"


@pytest.mark.parametrize("name", OWN)
def test_every_number_belongs_to_a_cell_whose_weights_can_load(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number for which there can be no cell says why in `missing`."""
    here = tmp_path / "weights"
    for module in (state_dicts, torchvision):
        monkeypatch.setattr(module, "fetch", lambda *_: here)
    monkeypatch.setattr(CifarModel, "_local", lambda _: here)
    monkeypatch.setattr(classifiers, "verified", lambda path, _: path)
    for wanted in (row.wanted for row in load(name).rows if not row.wanted.missing):
        source = registry.load("models", wanted.model)(**wanted.weights)
        if wanted.weights.get("weights") == "auto":
            assert source._fetched() == here, "a file that is refused"
        params = dataclasses.asdict(source) if wanted.weights else {}
        if "weights" not in wanted.weights:
            params.pop("weights", None)  # a path, which cells do not state
        stated = dict(wanted.stream) | {f"model.{key}": value for key, value in params.items()}
        facts = (min(wanted.data), wanted.model, wanted.bits, wanted.method, wanted.settings)
        assert wanted.matches(Identity(*facts, wanted.reset or "never", stated))


UNCHECKED = "weights from a path; the published file has no known hash here, so they were not checked"


@pytest.mark.parametrize(("stated", "verdict"), [({}, "within"), ({"model.weights": "random"}, "not run")])
def test_weights_without_a_known_hash_count_with_a_caveat(stated: dict[str, Any], verdict: str) -> None:
    identity = {"batch_size": 200, "order": "aligned", "model.classes": 100} | stated
    params = ROID | {"optimizer": "adam", "lr": 0.001}
    facts = {"data": "cifar100-c", "model_plugin": "resnext-29", "model": "ResNeXt-29", "batch_size": 200}
    own = frame(70.7, **facts, n=10_000, params=json.dumps(params), identity=json.dumps(identity))
    (found,) = compared(own)
    assert (found.published.table, found.verdict) == ("continual cifar100-c", verdict)
    assert found.note == (UNCHECKED if verdict == "within" else "random weights")
    shown = build(own, "per-corruption", reference="mariodoebler")
    assert any(row.published for row in shown.groups[0].rows) == (verdict == "within")
    assert (UNCHECKED in str(shown.footnotes)) == (verdict == "within")


@pytest.mark.parametrize(
    ("name", "method", "model", "metric", "told"),
    [
        ("fozo", "FOZO", "vit-b", "accuracy", True),
        ("fozo", "ZOA", "vit-b", "accuracy", True),
        ("fozo", "FOA", "vit-b", "accuracy", False),  # its variants are equal on tokens
        ("pea", "PEA", "vit-b", "accuracy", True),
        ("foa", "SAR", "vit-b", "memory_mib", True),
        ("foa", "FOA", "vit-b", "memory_mib", False),
        ("zoa-mm25", "ZOA", "vit-b", "memory_mib", True),
        ("zoa-mm25", "FOA (K=2)", "resnet-50", "memory_mib", True),
        ("zoa-mm25", "FOA (K=2)", "vit-b", "memory_mib", False),
    ],
)
def test_another_variant_than_the_released_one_is_told(
    name: str, method: str, model: str, metric: str, told: bool
) -> None:
    reference = load(name)
    row = next(
        row for row in reference.rows if (row.method, row.wanted.model, row.metric) == (method, model, metric)
    )
    wanted, cite = row.wanted, Citation(metric, row.column, 1 if row.round is None else row.round)
    notes = []
    for variant in ("released", "corrected"):
        settings = {**wanted.settings, "variant": variant}
        facts = (min(wanted.data), wanted.model, wanted.bits, wanted.method, settings)
        found = reference.find(Identity(*facts, wanted.reset or "never"), cite)
        notes.append("" if found is None else found.note)
    remark = "variant corrected, published with released"
    assert [remark in note for note in notes] == [False, told]


@pytest.mark.parametrize(
    ("variant", "note"), [("released", ""), ("corrected", "variant corrected, published with released")]
)
def test_verdicts_tell_another_variant(variant: str, note: str) -> None:
    params = json.dumps({"pairs": 1, "variant": variant})
    own = frame(59.52, **VIT, method="FOZO", method_plugin="fozo", params=params)
    (found,) = (each for each in compared(own, "fozo") if each.published.metric == "accuracy")
    assert (found.verdict, found.note) == ("within", note)


@pytest.mark.parametrize("name", OWN)
def test_another_lineage_is_never_matched(name: str) -> None:
    for row in load(name).rows:
        wanted = row.wanted
        for model in wanted.other_weights:
            other = Identity(
                min(wanted.data), model, wanted.bits, wanted.method, wanted.settings, wanted.reset or "never"
            )
            assert not wanted.matches(other)
            assert f"other weights: {model}" in str(wanted.differences(other))


def frame(accuracy: float = 55.0, **changes: Any) -> pd.DataFrame:
    """A run of ROID on ViT-B over the 15 corruptions, one round, as mariodoebler's continual stream."""
    identity = {"batch_size": 64, "order": "aligned", "model.use": "x", "model.weights": "auto"}
    facts = {
        "key": "roid", "quantizer": "fp32", "method": "ROID", "bits": "FP32", "variant": "", "reset": "never",
        "version": "1", "seed": 1, "round": 1, "status": "ok", "reason": "", "backprop": True,
        "memory_mib": 1.0, "packed_mib": None, "measured_mib": None,
        "model_order": 0, "quantizer_order": 0, "method_order": 0,
        "data": "imagenet-c", "method_plugin": "roid", "params": json.dumps(ROID), "batch_size": 64,
        "rounds": 1, "severity": 5, "n": 5000, "forwards": 1.5, "backwards": 1.5, "skipped_updates": 0,
        "skipped_reasons": "{}", "fingerprint": None, "identity": json.dumps(identity),
    }  # fmt: skip
    places = [{"corruption": name, "domain_order": i} for i, name in enumerate(IMAGENET_C_15)]
    return pd.DataFrame([facts | place | {"accuracy": accuracy} | changes for place in places])


def compared(own: pd.DataFrame, name: str = "mariodoebler") -> list[Comparison]:
    return compare(own, load(name), Tolerance())


def test_a_cell_of_the_right_lineage_has_a_verdict() -> None:
    (found,) = [each for each in compared(frame(**TORCHVISION)) if each.published.round == 1]
    assert (found.published.table, found.verdict) == ("continual imagenet-c", "within")
    (off,) = compared(frame(**TORCHVISION, accuracy=50.0))
    assert (off.verdict, off.difference) == ("off", pytest.approx(-5.0))


def test_a_cell_of_another_lineage_is_not_run_with_the_reason() -> None:
    (found,) = compared(frame(**VIT))
    assert (found.verdict, found.ours) == ("not run", None)
    assert found.note == "other weights: vit-b, published with vit-b-torchvision"
    shown = build(frame(**VIT), "per-corruption", reference="mariodoebler")
    assert not any(row.published for row in shown.groups[0].rows)


def test_a_cell_on_another_stream_is_not_run_with_the_reason() -> None:
    (found,) = compared(frame(**TORCHVISION, reset="domain"))
    assert (found.verdict, found.note) == ("not run", "reset domain, published with never")


def test_more_images_than_published_are_told() -> None:
    (found,) = compared(frame(**TORCHVISION, n=50_000))
    assert found.note == "50000 images per domain, published with 5000"


def test_what_no_cell_can_be_is_counted() -> None:
    told = summarize([], load("note"), Tolerance())
    assert "12 numbers belong to no cell: no model has the weights of the ResNet-18" in told.text


# -- what is shown ---------------------------------------------------------------------------------


def test_answers_and_captions_say_weights_protocol_and_images() -> None:
    own = frame(**TORCHVISION)
    told = summarize(compared(own), load("mariodoebler"), Tolerance()).text
    (note,) = build(own, "per-corruption", reference="mariodoebler").notes[-1:]
    for text in (told, note):
        assert "Weights: ViT-b-16: torchvision's IMAGENET1K_V1" in text
        assert (
            "continual, reset never, batches of 64, 1 round, order aligned, 5,000 images per domain" in text
        )
        assert "100 minus the error" in text
        assert "Confidence: read in the README." in text


def test_several_references_have_rows_of_their_own() -> None:
    own = frame(method="source", method_plugin="source", params="{}", **VIT)
    table = build(own, "per-corruption", reference=["fozo", "pea", "fozo"])
    labels = [row.label for row in table.groups[0].rows]
    assert labels == ["source", "source, published in fozo", "source, published in pea"]
    values = [row.entries[-1].value for row in table.groups[0].rows]
    assert values == [55.0, 55.57, 55.5]
    assert [note.split(":")[0] for note in table.notes[-2:]] == ["Published in fozo", "Published in pea"]


def test_list_shows_a_reference_with_every_number() -> None:
    listed = tta_bench("list", "references")
    assert all(name in listed.stdout for name in OWN)
    shown = tta_bench("list", "references", "fozo").stdout
    for text in (
        "eVI-group-SCU/FOZO@d170fbd",
        "augreg2",
        "known from notes of third parties",
        "pairs=13",
        "59.52",
    ):
        assert text in shown
    data = json.loads(tta_bench("list", "references", "foa", "--json").stdout)
    assert len(data["numbers"]) == len(load("foa").rows)


@pytest.mark.parametrize("command", [("list", "references", "neoo"), ("compare", "--reference", "neoo")])
def test_an_unknown_name_is_told_with_suggestions(command: tuple[str, ...], results: Path) -> None:
    where = () if command[0] == "list" else ("--results", results)
    outcome = tta_bench(*command, *where)
    assert outcome.returncode == 2
    assert 'Did you mean "neo"?' in outcome.stderr


# -- third parties ---------------------------------------------------------------------------------

ENTRY_POINTS = """
[tta_bench.references]
mine = my_reference:published
wrong = my_reference:nothing
raises = my_reference:raises
absent = my_other_reference:published
"""
CODE = '''
from pathlib import Path

from tta_bench.tables.references.reference import Reference
from tta_bench.tables.references.files import read


def published() -> Reference:
    """One number."""
    return read(Path(__file__).with_name("mine.csv"))


def nothing():
    return 3


def raises():
    raise KeyError("numbers")
'''
ABOUT = """
title: My paper
source: table 1
data: cifar10-mini
images: {cifar10-mini: 40}
stream: {rounds: 3, batch_size: 16, corruptions: fog}
models: {ViT: {use: vit-micro, lineage: mine}}
methods: {None: {use: source, reset: any}}
tables: {table 1: {}}
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results written by hand, of vit-micro and another network on three corruptions."""
    from tests.helpers.report_results import DEMO, write

    write(
        dataclasses.replace(DEMO, models=DEMO.models[:1], methods=DEMO.methods[:1], ends={}),
        tmp_path / "results",
    )
    return tmp_path / "results"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with four references, three of them broken, on the path of Python."""
    facts = tmp_path / "my_reference-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my-reference\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "my_reference.py").write_text(CODE)
    (tmp_path / "mine.yaml").write_text(ABOUT)
    row = "table 1,ViT,W8A8,None,3,fog,error,40.0\n"
    (tmp_path / "mine.csv").write_text("table,model,bits,method,round,column,metric,value\n" + row)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_reference_of_a_third_party_is_compared_and_shown(installed: Path, results: Path) -> None:
    where = ("--results", results, "--reference", "mine")
    outcome = tta_bench("compare", *where, "--json")
    assert outcome.returncode == 0, outcome.stderr
    (found,) = json.loads(outcome.stdout)["cells"]
    assert found["published"] == 60.0
    assert found["verdict"] in ("within", "off")
    table = tta_bench("table", *where, "--layout", "per-corruption", "--format", "markdown")
    assert "*60.0*" in table.stdout, table.stderr
    assert "Weights: ViT: mine." in table.stdout
    two = tta_bench("compare", *where, "--reference", "fozo", "--json")
    assert [each["reference"] for each in json.loads(two.stdout)] == ["mine", "fozo"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("wrong", 'reference "wrong" (my-reference 1.0) does not work: TypeError: it returns int'),
        ("raises", 'reference "raises" (my-reference 1.0) does not work: KeyError'),
        ("absent", 'reference "absent" (my-reference 1.0) cannot be imported: ModuleNotFoundError'),
    ],
)
def test_a_broken_reference_breaks_only_itself(installed: Path, results: Path, name: str, told: str) -> None:
    outcome = tta_bench("compare", "--results", results, "--reference", name)
    assert outcome.returncode == 2
    assert told in outcome.stderr
    listed = tta_bench("list", "references", "--long").stdout
    assert listed.count("BROKEN:") == 3
    assert "My paper" in listed
    assert isinstance(load("fozo"), Reference)


def test_the_example_in_the_docs_is_a_reference(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "references.md").read_text(encoding="utf-8")
    for language, name in (("text", "mine.csv"), ("yaml", "mine.yaml")):
        (tmp_path / name).write_text(text.partition(f"```{language}\n")[2].partition("```")[0])
    rows = load(str(tmp_path / "mine.csv")).rows
    assert [row.value for row in rows] == [37.4, 49.8]
    assert rows[0].wanted.settings == {"lr": 0.00025, "nesterov": True}


def test_a_file_that_does_not_fit_is_told_with_its_place(installed: Path) -> None:
    (installed / "own.csv").write_text((installed / "mine.csv").read_text())
    (installed / "own.yaml").write_text(ABOUT.replace("source: table 1", "sauce: table 1"))
    with pytest.raises(Exception, match=r"own\.yaml: source: Field required(.|\n)*own\.yaml: sauce: Extra"):
        load(str(installed / "own.csv"))
