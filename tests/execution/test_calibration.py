"""Calibrations on disk: found by what they were made from, made by one process, continued after a stop."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tta_bench.api import BlockwiseQuantizer, Calibration, Model, Progress, Quantizer
from tta_bench.cache import native_code
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.execution import calibration
from tta_bench.plugins import registry
from tta_bench.plugins.identity import PluginIdentity, identify
from tta_bench_quantizers.ptq4vit.quantizer import Ptq4Vit
from tta_bench_quantizers.uniform import UniformQuantizer

FACTS = {"weights": "a" * 64, "model": "m"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; returns where calibrations go."""
    native_code.library("tta_bench_quantizers._core", "kernels.cpp")  # compile once for all tests
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "calibrations"


@pytest.fixture(scope="module")
def images() -> Tensor:
    return Cifar10Mini().source_images()[:8]


def part(group: str, use: str, **params: Any) -> PluginIdentity:
    return identify(group, use, params, "1", "weights" if group == "models" else "")


def same(a: Calibration, b: Calibration) -> bool:
    """Whether two calibrations have the same tensors, bit for bit."""
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a
    )


# -- entries -----------------------------------------------------------------------------------------


def test_a_calibration_is_found_by_all_its_facts(folder: Path) -> None:
    made: list[int] = []

    def make() -> Calibration:
        made.append(1)
        return {"scale": torch.rand(3), "codes": torch.arange(6, dtype=torch.uint8).view(2, 3).T}

    first = calibration.cached(FACTS, make)
    assert same(calibration.cached(FACTS, make), first)
    assert first["codes"].is_contiguous()
    assert len(made) == 1
    for fact in FACTS:
        assert not same(calibration.cached(FACTS | {fact: "other"}, make), first)
    assert len(made) == 3


def test_tensors_that_share_memory_are_saved() -> None:
    rows = torch.arange(6.0).view(2, 3)
    first = calibration.cached(FACTS, lambda: {"a": rows[0], "b": rows[1], "column": rows[:, 1]})
    assert same(calibration.cached(FACTS, dict), first)
    assert first["column"].tolist() == [1, 4]


def test_a_calibration_of_other_weights_is_not_used(folder: Path) -> None:
    """A file under another's name has the right checksum; its header tells what it was made from."""
    calibration.cached(FACTS, lambda: {"scale": torch.zeros(1)})
    (path,) = folder.iterdir()
    others = FACTS | {"weights": "b" * 64}
    calibration.cached(others, lambda: {"scale": torch.ones(1)})
    (other,) = set(folder.iterdir()) - {path}
    other.unlink()
    path.rename(path.with_name(other.name.split(".")[0] + path.name[path.name.index(".") :]))
    assert calibration.cached(others, lambda: {"scale": torch.ones(1)})["scale"].tolist() == [1]


@pytest.mark.parametrize("changed", ["model", "quantizer", "images", "threads"])
def test_facts_tell_apart_whatever_may_change_a_scale(changed: str, images: Tensor) -> None:
    def facts(**change: Any) -> dict[str, str]:
        source = part("models", "vit-micro") if "model" not in change else part("models", "resnet-micro")
        scheme = part("quantizers", "uniform", bits=change.get("quantizer", "W8A8"))
        return calibration.facts_of(source, scheme, change.get("images", images))

    before = facts()
    assert facts() == before
    if changed == "threads":
        torch.set_num_threads(2)
    change = {"quantizer": "W4A4", "images": images[:7], "model": "other"}.get(changed)
    assert facts(**({} if change is None else {changed: change})) != before


def test_without_images_there_are_facts_too(images: Tensor) -> None:
    assert calibration.facts_of(part("models", "vit-micro"), part("quantizers", "fp32"), images[:0])


def test_where_nothing_can_be_saved_the_calibration_is_made(
    tmp_path: Path, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, scheme = part("models", "vit-micro"), part("quantizers", "uniform", bits="W8A8")
    model = source.make().build()
    saved = calibration.of(source, scheme, model, images)
    (tmp_path / "file").touch()
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "file" / "cache"))
    assert same(calibration.of(source, scheme, model, images), saved)


def test_calibrating_does_not_change_the_model(images: Tensor) -> None:
    source, scheme = part("models", "vit-micro"), part("quantizers", "adalog", rounds=1, rows=16)
    model = source.make().build()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    calibration.of(source, scheme, model, images)
    assert same(dict(model.state_dict()), before)


# -- processes ---------------------------------------------------------------------------------------

SITES = 38  # of vit-micro
PROCESSES = multiprocessing.get_context("spawn")  # autograd may have run here, which forbids to fork


def calibrate(log: Path, seconds: float, result: Any) -> None:
    """Calibrate in this process, and write a line for every site that is searched."""
    fit = Ptq4Vit._fit

    def logged(*args: Any) -> dict[str, Tensor]:
        with open(log, "a") as file:
            file.write("site\n")
        time.sleep(seconds)
        return fit(*args)

    Ptq4Vit._fit = logged  # type: ignore[method-assign]
    source = part("models", "vit-micro")
    scheme = part("quantizers", "ptq4vit", candidates=2, rounds=1, rows=8)
    found = calibration.of(source, scheme, source.make().build(), Cifar10Mini().source_images()[:8])
    result.put(sum(float(tensor.double().sum()) for tensor in found.values()))


def start(log: Path, seconds: float = 0.0) -> tuple[Any, Any]:
    result = PROCESSES.Queue()
    process = PROCESSES.Process(target=calibrate, args=(log, seconds, result))
    process.start()
    return process, result


def lines(log: Path) -> int:
    return log.read_text().count("\n") if log.exists() else 0


def test_three_processes_calibrate_once(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    started = [start(log) for _ in range(3)]
    assert len({result.get(timeout=120) for _, result in started}) == 1
    for process, _ in started:
        process.join()
    assert lines(log) == SITES
    assert len(list(folder.iterdir())) == 1


@pytest.mark.slow
def test_a_killed_calibration_goes_on_in_another_process(folder: Path, tmp_path: Path) -> None:
    whole, killed, continued = tmp_path / "whole", tmp_path / "killed", tmp_path / "continued"
    first, _ = start(killed, 0.05)
    while lines(killed) < 10 and first.is_alive():
        time.sleep(0.02)
    first.kill()
    first.join()
    assert any(folder.glob("*.unfinished/*"))
    output = start(continued)[1].get(timeout=120)
    assert lines(continued) <= SITES - lines(killed) + 1  # the one that was begun last is not finished
    assert [path.suffix for path in folder.iterdir()] == [".safetensors"]
    for path in folder.iterdir():
        path.unlink()
    assert start(whole)[1].get(timeout=120) == output
    assert lines(whole) == SITES


# -- block by block ----------------------------------------------------------------------------------


class Stopped(Exception):
    """What stands for a kill."""


SCHEMES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ptq4vit": ("vit-micro", "ptq4vit", {"bits": "W6A6", "candidates": 4, "rounds": 1, "rows": 16}),
    "adalog": ("vit-micro", "adalog", {"bits": "W4A4", "rounds": 1, "rows": 16}),
    "adalog, rounding learned": (
        "vit-micro",
        "adalog",
        {
            "bits": "W4A4",
            "rounds": 1,
            "rows": 16,
            "reconstruction": "adaround",
            "recon_steps": 2,
            "recon_images": 8,
        },
    ),
    "mqbench": ("resnet-micro", "mqbench", {"bits": "W4A4", "recon_steps": 2, "recon_images": 8}),
    "ptq4vm": ("vim-micro", "ptq4vm", {"bits": "W4A4"}),
    "ptq4vm, scales learned": ("vim-micro", "ptq4vm", {"bits": "W4A4", "jlss": True, "jlss_steps": 2}),
}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int | None], list[str]]:
    """Count the blocks that a quantizer calibrates, and stop it before the one of a given number."""

    def count(use: str, stop: int | None) -> list[str]:
        cls, seen = registry.load("quantizers", use), list[str]()
        plain = getattr(cls.calibrate_blocks, "plain", cls.calibrate_blocks)

        def calibrate_blocks(self: Any, model: Model, images: Tensor, progress: Progress, once: Any) -> Any:
            def counting(block: str, make: Callable[[], Calibration]) -> Calibration:
                def logged() -> Calibration:
                    if len(seen) == stop:
                        raise Stopped
                    seen.append(block)
                    return make()

                return once(block, logged)

            return plain(self, model, images, progress, counting)

        calibrate_blocks.plain = plain  # type: ignore[attr-defined]
        monkeypatch.setattr(cls, "calibrate_blocks", calibrate_blocks)
        return seen

    return count


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_stopped_calibration_goes_on_bit_for_bit(
    scheme: str, images: Tensor, folder: Path, counted: Callable[[str, int | None], list[str]]
) -> None:
    name, use, params = SCHEMES[scheme]
    source, quantizer = part("models", name), part("quantizers", use, **params)
    model = source.make().build()
    blocks = counted(use, None)
    whole = calibration.of(source, quantizer, model, images)
    total = len(blocks)
    assert total > 4
    assert len(set(blocks)) == total
    for path in folder.iterdir():
        path.unlink()
    done: list[str] = []
    for stop in (2, total // 2):
        blocks = counted(use, stop)
        with pytest.raises(Stopped):
            calibration.of(source, quantizer, model, images)
        done += blocks
    last = counted(use, None)
    ticks: list[tuple[int, int]] = []
    found = calibration.of(source, quantizer, model, images, lambda *tick: ticks.append(tick))
    assert same(found, whole)
    assert sorted(done + last) == sorted(set(done + last))
    assert len(done + last) == total
    assert ticks[-1][0] == ticks[-1][1]
    assert [path.suffix for path in folder.iterdir()] == [".safetensors"]


def test_a_damaged_block_is_calibrated_again(
    images: Tensor, folder: Path, counted: Callable[[str, int | None], list[str]]
) -> None:
    source, quantizer = part("models", "vim-micro"), part("quantizers", "ptq4vm", bits="W4A4")
    model = source.make().build()
    done = counted("ptq4vm", 3)
    with pytest.raises(Stopped):
        calibration.of(source, quantizer, model, images)
    first, *_ = folder.glob("*.unfinished/*.safetensors")
    *rest, end = first.read_bytes()
    first.write_bytes(bytes([*rest, end ^ 1]))
    last = counted("ptq4vm", None)
    found = calibration.of(source, quantizer, model, images)
    assert len(done) + len(last) == 6 + 1
    assert same(found, quantizer.make().calibrate(model, images, lambda *_: None))


def test_blocks_of_abandoned_calibrations_are_removed(images: Tensor, folder: Path) -> None:
    old, young = folder / "old.unfinished", folder / "young.unfinished"
    for path in (old, young):
        path.mkdir(parents=True)
        (path / "block").touch()
    os.utime(old, (0, 0))
    source, scheme = part("models", "vit-micro"), part("quantizers", "uniform")
    calibration.of(source, scheme, source.make().build(), images)
    assert not old.exists()
    assert young.exists()


@dataclass
class ThreeArguments(Quantizer):
    """A third party's quantizer, written before there were blocks."""

    bits: str = "W8A8"

    def calibrate(self, model: Model, images: Tensor, progress: Progress) -> Calibration:
        progress(1, 1)
        return {"mean": images.mean().view(1)}

    def apply(self, model: Model, calibration: Calibration) -> None:
        pass

    def packed_bytes(self, model: Model) -> int:
        return 0


@pytest.fixture
def old_quantizer(monkeypatch: pytest.MonkeyPatch) -> PluginIdentity:
    monkeypatch.setattr(PluginIdentity, "make", lambda self: ThreeArguments())
    return PluginIdentity("quantizers", "uniform", {}, "1")


def test_a_quantizer_without_blocks_is_calibrated_as_before(
    old_quantizer: PluginIdentity, images: Tensor, folder: Path
) -> None:
    model = registry.load("models", "vit-micro")().build()
    ticks: list[tuple[int, int]] = []
    for _ in range(2):
        found = calibration.of(
            part("models", "vit-micro"), old_quantizer, model, images, lambda *tick: ticks.append(tick)
        )
        assert found["mean"] == images.mean()
    assert ticks == [(1, 1)]


def test_quantizers_that_work_block_by_block_say_so() -> None:
    for name in ("ptq4vit", "adalog", "ptq4vm", "mqbench"):
        assert issubclass(registry.load("quantizers", name), BlockwiseQuantizer)
    assert not issubclass(UniformQuantizer, BlockwiseQuantizer)


def test_engines_share_the_calibration_of_the_simulation(images: Tensor) -> None:
    source = part("models", "vit-micro")
    simulated, engine = (
        calibration.facts_of(source, part("quantizers", "uniform", bits="W8A8", engine=name), images)
        for name in ("simulated", "torch-int8")
    )
    assert simulated == engine
    assert simulated == calibration.facts_of(source, part("quantizers", "uniform", bits="W8A8"), images)
