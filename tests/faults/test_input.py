"""Inputs that are well-formed and yet wrong, or just unusual: told, or dealt with, never crashed on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faults.conftest import Bench
from tta_bench.plugins import registry

SMALL = {"rounds": 1, "limit": 5}


pytestmark = pytest.mark.usefixtures("no_bytes")


def on_resnets() -> list[str]:
    """The methods that run on resnet-micro in full precision."""
    network = registry.load("models", "resnet-micro")().build()
    return [
        name
        for name in registry.names("methods")
        if registry.load("methods", name)().unsupported(network) is None
    ]


def test_a_model_that_yields_no_numbers_is_counted_as_wrong(bench: Bench) -> None:
    methods = [name for name in on_resnets() if name not in ("memo", "cotta", "unsavable", "miscounts")]
    bench.write(methods, models=["nan-model"], stream=SMALL | {"corruptions": ["fog"]})
    bench.here()
    for name, row in bench.status().items():
        assert row["state"] in ("done", "failed"), name
    (source,) = [
        json.loads(line.split("\t")[0]) for line in bench.records() if ".source." in line and '"ok"' in line
    ]
    assert source["nonfinite_images"] == source["images"] == 5
    assert source["correct"] == source["top5_correct"] == 0


@pytest.mark.parametrize(
    ("data", "note"),
    [
        ("no-images", "ValueError: data no-images has no test images"),
        ("too-many-classes", "has labels from 0 to 10, and the model knows 10 classes"),
        ("broken-data", "OSError: ILSVRC_1.JPEG: image file is truncated"),
    ],
)
def test_data_that_cannot_be_used_fails_its_cells_with_the_reason(data: str, note: str, bench: Bench) -> None:
    bench.write(["source", "drift"], data=data, stream=SMALL)
    assert bench.here().returncode == 1
    for row in bench.status().values():
        assert row["state"] == "failed"
        assert note in row["note"]
    kept = [line for line in bench.records() if '"status":"ok"' in line]
    assert len(kept) == (2 if data == "broken-data" else 0), "the domain before the bad image counts"


def test_data_that_does_not_fit_the_model_is_refused(bench: Bench) -> None:
    bench.write(["source"], data="wrong-size")
    outcome = bench.here()
    assert outcome.returncode == 2
    assert "resnet-micro has 10 classes, and data wrong-size has 100" in outcome.stderr
    assert "resnet-micro has 32 pixels per side, and data wrong-size has 64" in outcome.stderr


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"data": "no-dataclass"}, "data: the plugin NoDataclass is no dataclass"),
        (
            {"models": ["no-fingerprint"]},
            'model "no-fingerprint" (faulty 1.0) does not work: OSError: the weights',
        ),
    ],
)
def test_a_plugin_that_cannot_even_be_asked_is_named(
    changes: dict[str, Any], expected: str, bench: Bench
) -> None:
    bench.write(["source"], **changes)
    outcome = bench.here()
    assert outcome.returncode == 2
    assert expected in outcome.stderr


def test_images_that_cannot_be_prepared_can_still_be_read(bench: Bench) -> None:
    bench.write(["source"], data="unpreparable", stream=SMALL)
    outcome = bench.here()
    assert outcome.returncode == 0
    assert "images of fog-5: cannot be made ready: the cache is gone" in outcome.stderr


@pytest.mark.parametrize("stream", [{"batch_size": 1, "limit": 2}, {"batch_size": 64, "limit": 5}])
def test_batches_of_one_and_streams_shorter_than_a_batch(stream: dict[str, Any], bench: Bench) -> None:
    methods = [name for name in on_resnets() if name not in ("memo", "unsavable", "miscounts")]
    bench.write(methods, stream=stream | {"rounds": 1, "corruptions": ["fog"]})
    bench.here()
    rows = bench.status()
    refused = {name: row["note"] for name, row in rows.items() if row["state"] != "done"}
    demanding = {
        name for name in methods if registry.load("methods", name)().min_batch_size > stream["batch_size"]
    }
    assert set(refused) == demanding
    assert all("needs batches of at least 2 images" in reason for reason in refused.values()), refused
    batches = -(-stream["limit"] // stream["batch_size"])
    for record in [json.loads(line.split("\t")[0]) for line in bench.records()]:
        if record["status"] == "unsupported":
            continue
        assert record["images"] == stream["limit"]
        assert len(record["correct_per_batch"]) == batches
