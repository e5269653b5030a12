"""Batches too small to adapt to are refused or skipped, and every skipped update tells why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from tests.conftest import SMALL
from tta_bench import config, grid
from tta_bench.api import Method, Source
from tta_bench.cli import app
from tta_bench.errors import Unsupported
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import RunPolicy, Start
from tta_bench.footprint import account
from tta_bench.planning.sharing import resolve
from tta_bench.plugins import registry
from tta_bench_methods.foa import Foa
from tta_bench_methods.zoa import Zoa
from tta_bench_quantizers.fp32 import Fp32

pytestmark = pytest.mark.usefixtures("no_bytes")
Write = Callable[..., Path]

NEED_TWO = {
    "foa": "the standard deviation of one image is not defined",
    "zoa": "the standard deviation of one image is not defined",
    "lame": "one image has no neighbours",
    "fozo": "the standard deviation of one image is not defined",
    "pace": "the standard deviation of one image is not defined",
    "actmad": "one image has no variance",
    "roid": "weights compare the images of a batch",
    "cmf": "weights compare the images of a batch",
}


def records_of(path: Path, **policy: Any) -> list[dict[str, Any]]:
    """The records of all cells of a file, each run alone."""
    executor = Executor(RunPolicy(**policy))
    cells = grid.expand(config.load(path))
    deliveries = [each for cell in cells for each in executor.run([resolve(cell)])]
    return [record for delivery in deliveries for record in delivery.records]


def stream(**changes: Any) -> dict[str, Any]:
    return SMALL["stream"] | {"corruptions": ["fog"], "rounds": 1} | changes


# -- refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry.names("methods"))
def test_who_needs_two_images(name: str) -> None:
    method: Method = registry.load("methods", name)()
    assert method.refuses_batch(2) is None
    reason = NEED_TWO.get(name)
    wanted = None if reason is None else f"needs batches of at least 2 images, and they have 1: {reason}"
    assert method.refuses_batch(1) == wanted


def test_foa_that_gathers_images_takes_single_ones() -> None:
    assert Foa(interval=4).refuses_batch(1) is None
    deferred = Foa(interval=4, predictions="deferred")  # the grid makes its batches at least as large
    assert (deferred.gathers, deferred.refuses_batch(4)) == (4, None)
    assert deferred.refuses_batch(1)


def test_single_images_make_a_row_that_is_unsupported(write_yaml: Write) -> None:
    """FOA predicted them with its random prompt for ever, and reported no skipped update."""
    path = write_yaml(
        models=["vit-micro"],
        quantizers=["fp32"],
        methods=["source", {"use": "foa", "k": 3}, {"use": "foa", "name": "FOA-I", "k": 3, "interval": 4}],
        stream=stream(batch_size=1, limit=8),
    )
    source, foa, gathering = records_of(path)
    assert (source["status"], foa["status"], gathering["status"]) == ("ok", "unsupported", "ok")
    assert foa["reason"] == f"needs batches of at least 2 images, and they have 1: {NEED_TWO['foa']}"
    assert gathering["skipped_updates"] == 0


def test_byte_counts_refuse_such_batches_with_the_same_reason() -> None:
    with pytest.raises(Unsupported, match="needs batches of at least 2 images, and they have 1"):
        account.account("vit-micro", Fp32(), Zoa(), 1)


# -- skipped, with a reason ----------------------------------------------------------------------------


def test_a_last_batch_of_one_is_predicted_and_skipped_with_its_reason(
    write_yaml: Write, tmp_path: Path
) -> None:
    path = write_yaml(
        models=["vit-micro"],
        quantizers=["fp32"],
        methods=["source", {"use": "foa", "k": 3}, "zoa", "lame"],
        stream=stream(batch_size=8, limit=17, corruptions=["fog", "contrast"]),
    )
    results = tmp_path / "results"
    outcome = CliRunner().invoke(app, ["run", str(path), "--results", str(results), "--quiet"])
    assert outcome.exit_code == 0, outcome.output
    table = CliRunner().invoke(app, ["table", "--results", str(results), "--layout", "long-term"]).output
    for reason in {NEED_TWO[name] for name in ("foa", "zoa", "lame")}:
        assert f"2 updates skipped: a batch of one image: {reason}" in " ".join(table.split())


def test_a_stopped_domain_keeps_its_reasons(write_yaml: Write) -> None:
    """Counts by reason are part of a checkpoint, as all counts are."""
    path = write_yaml(
        models=["vit-micro"],
        quantizers=["fp32"],
        methods=["skips"],
        stream=stream(batch_size=4, limit=16),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "load", loading(Skips, registry.load))
        patch.setattr(registry, "names", lambda group, names=registry.names: [*names(group), "skips"])
        patch.setattr(registry, "find", finding(registry.find))
        (cell,) = grid.expand(config.load(path))
        whole = [record for delivery in Executor().run([resolve(cell)]) for record in delivery.records]
        stops = iter([False, False, False, True] + [True] * 9)
        first = list(Executor().run([resolve(cell)], stop=lambda: next(stops)))
        (checkpoint,) = (delivery.checkpoint for delivery in first if delivery.checkpoint)
        start = Start(checkpoint=checkpoint, described=True)
        continued = Executor().run([resolve(cell)], [start])
        rest = [record for delivery in continued for record in delivery.records]
    assert whole[0]["skipped_reasons"] == {"even": 2, "odd": 2}
    assert rest[0]["skipped_reasons"] == whole[0]["skipped_reasons"]
    assert rest[0]["skipped_updates"] == 4


@dataclass
class Skips(Method):
    """Skips every update, with one of two reasons."""

    def reset(self) -> None:
        self.steps = 0

    def setup(self, model: Any, source: Source) -> None:
        self.model = model
        self.reset()

    def step(self, x: Tensor) -> Tensor:
        self.skip("odd" if self.steps % 2 else "even")
        self.steps += 1
        return self.model(x)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def loading(cls: type, load: Callable[..., Any]) -> Callable[..., Any]:
    return lambda group, name: cls if name == "skips" else load(group, name)


def finding(find: Callable[..., Any]) -> Callable[..., Any]:
    return lambda group, name: find(group, "source" if name == "skips" else name)


REASONS = {
    "bn-adapt": "the statistics of a batch were not finite",
    "cotta": "the loss was not finite",
    "deyo": "logits were not finite",
    "eata": "logits were not finite",
    "eta": "logits were not finite",
    "foa": "the fitness of a prompt was not finite",
    "memo": "the loss was not finite",
    "sar": "logits were not finite",
    "shift": "the mean of a batch was not finite",
    "t3a": "features were not finite",
    "tent": "the loss was not finite",
    "zoa": "the loss or its estimated gradient was not finite",
}
PARAMS: dict[str, dict[str, Any]] = {"bn-adapt": {"variant": "ema"}, "foa": {"k": 3}, "memo": {"views": 2}}


@pytest.mark.parametrize("name", REASONS)
def test_a_broken_batch_is_skipped_with_its_reason(name: str) -> None:
    model = registry.load("models", "resnet-micro")().build()
    method: Method = registry.load("methods", name)(**PARAMS.get(name, {}))
    images = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    if method.consumes == "features" and method.batch_statistics(model):
        model.use_batch_statistics()
    with torch.no_grad():
        method.setup(model, Source(images, 4))
        broken = torch.full_like(images[:2], torch.nan)
        method.step(model.features(broken) if method.consumes == "features" else broken)
    count = 2 if name == "memo" else 1  # MEMO learns from each image alone
    assert (method.skipped_updates, method.skipped_reasons) == (count, {REASONS[name]: count})


def test_reasons_of_one_instance_are_not_another_ones() -> None:
    one, other = Zoa(), Zoa()
    before = one.skipped_reasons
    one.skip("first")
    one.skip("first")
    assert (one.skipped_updates, dict(one.skipped_reasons)) == (2, {"first": 2})
    assert (dict(before), other.skipped_updates, dict(other.skipped_reasons)) == ({}, 0, {})
