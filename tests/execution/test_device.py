"""GPUs without one: tensors that pretend to be on it, an allocator by hand, a cluster that claims some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from tta_bench import config, grid
from tta_bench.api import Method, Model, Source
from tta_bench.cli import app
from tta_bench.errors import UserError
from tta_bench.execution.executor import Executor
from tta_bench.execution.messages import RunPolicy
from tta_bench.execution.process import choose_device
from tta_bench.execution.ray.capacity import capacity
from tta_bench.execution.ray.driver import RayRunner
from tta_bench.execution.ray.nodes import Nodes
from tta_bench.execution.ray.stop_flag import StopFlag
from tta_bench.execution.ray.worker_pool import WorkerPool
from tta_bench.footprint.account import Meter
from tta_bench.footprint.fake_tensors import fake_tensors
from tta_bench.footprint.skeleton import fake_
from tta_bench.models.micro import VitMicro
from tta_bench.planning.sharing import resolve
from tta_bench.storage import codec
from tta_bench.testing.bench import Bench
from tta_bench.testing.method_checks import stays_on_its_device

CUDA = torch.device("cuda")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


# Which device ---------------------------------------------------------------------------------------


@without_gpu
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused() -> None:
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="sees no GPU"):
        choose_device("cuda")


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_with_a_gpu_sums_are_made_reproducible(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    try:
        assert choose_device(wanted) == CUDA
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.allow_tf32
        assert choose_device("cpu").type == "cpu"
    finally:
        torch.use_deterministic_algorithms(False)


@without_gpu
@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_missing_gpu_is_told(engine: str, write_yaml: Callable[..., Path], tmp_path: Path) -> None:
    words = ["run", str(write_yaml()), "--engine", engine, "--device", "cuda", "--results", str(tmp_path)]
    outcome = CliRunner().invoke(app, words)
    assert isinstance(outcome.exception, UserError)  # which ends a command with its text and 2
    assert "run.device is cuda" in str(outcome.exception)


# A share of a GPU for every worker --------------------------------------------------------------------

GPU_NODE, CPU_NODE = {"CPU": 8.0, "GPU": 2.0}, {"CPU": 3.0}


@pytest.mark.parametrize(
    ("policy", "gpu", "cpu"),
    [
        (RunPolicy(), 2, 3),
        (RunPolicy(gpus=0.5), 4, 3),
        (RunPolicy(gpus=0.3), 6, 3),
        (RunPolicy(gpus=0.1), 8, 3),  # no more than it has cores
        (RunPolicy(threads=2), 2, 1),
        (RunPolicy(device="cuda", gpus=0.5), 4, 0),
        (RunPolicy(device="cpu"), 0, 11),
    ],
)
def test_workers_go_to_gpus_where_a_node_has_some(policy: RunPolicy, gpu: int, cpu: int) -> None:
    assert capacity([GPU_NODE, CPU_NODE], policy) == {"gpu": gpu, "cpu": cpu}


@pytest.mark.slow
def test_ray_gives_workers_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    start = ray.init
    monkeypatch.setattr(ray, "init", lambda *args, **options: start(*args, **options, num_gpus=2))
    runner = RayRunner(3, RunPolicy(gpus=0.25))
    with runner.connected():
        nodes = Nodes(runner.policy, runner.workers, print)
        pool = WorkerPool(ray, runner.policy, nodes, StopFlag("test"))
        nodes.update(ray.nodes())
        ((node, device, room),) = nodes.rooms()
        assert (device, room) == ("gpu", 3)
        for kind in ("gpu", "cpu"):
            pool.start(node, kind)
        ray.get(list(pool.pending))
        assert ray.available_resources()["GPU"] == 1.75
        assert ray.available_resources()["CPU"] == 1


# Bytes ------------------------------------------------------------------------------------------------


class Allocator:
    """CUDA's counters, by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.live = self.peak = 0
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: self.live)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: self.peak)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: self.take(0))

    def take(self, count: int) -> None:
        self.live += count
        self.peak = self.live if count == 0 else max(self.peak, self.live)


def test_a_cell_is_not_charged_for_what_others_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator, one, two = Allocator(monkeypatch), Meter(CUDA), Meter(CUDA)
    for meter, model in ((one, 100), (two, 40)):
        with meter.watching():
            allocator.take(model)
    for meter, kept in ((one, 7), (two, 1)):
        with meter.watching():  # a step: 50 for a while, some of it for good
            allocator.take(50)
            allocator.take(kept - 50)
    assert (one.peak_bytes, one.held_bytes) == (150, 107)
    assert (two.peak_bytes, two.held_bytes) == (90, 41)


def test_without_cuda_nothing_is_measured() -> None:
    meter = Meter(torch.device("cpu"))
    with meter.watching():
        torch.zeros(1000)
    assert meter.peak_bytes == meter.held_bytes == 0


# Whose tensors are where ------------------------------------------------------------------------------


def test_states_of_generators_stay_in_main_memory() -> None:
    state = {"rng": torch.Generator().get_state(), "rest": [(torch.zeros(2), 1)], "text": "a"}
    with fake_tensors():
        moved = codec.placed(state, CUDA)
    assert moved["rng"].device.type == "cpu"
    assert moved["rest"][0][0].device.type == "cuda"
    assert (moved["rest"][0][1], moved["text"]) == (1, "a")


@dataclass
class Stray(Method):
    """Adds a tensor of its own, in main memory."""

    memory = "batch"

    def setup(self, model: Model, source: Source) -> None:
        super().setup(model, source)
        self.mine = torch.ones(10)

    def step(self, x: Tensor) -> Tensor:
        return self.model(x) + self.mine

    def reset(self) -> None:
        pass


def test_the_contract_finds_a_tensor_that_stayed_behind() -> None:
    with pytest.raises(Exception, match="same device"):
        stays_on_its_device(Bench(Stray, VitMicro().build()))


@pytest.mark.parametrize("method", ["source", "t3a", "zoa", "tent"])
def test_a_cell_runs_where_its_executor_says(
    method: str, write_yaml: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, no_bytes: None
) -> None:
    """From the file to the record, batches and features included; only the numbers mean nothing."""
    stream = {"corruptions": ["clean"], "rounds": 1, "batch_size": 16, "limit": 40}
    file = write_yaml(quantizers=["fp32"], methods=[method], stream=stream)
    (cell,) = grid.expand(config.load(file))
    executor = Executor()
    executor.prepare(cell, cell.schedule.domains[0])
    spare = [executor.models.model(cell) for _ in range(2)]
    Allocator(monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Pretended")
    with fake_tensors():
        for model in spare:
            fake_(model, "cuda")
        executor.models.device = CUDA
        monkeypatch.setattr(executor.models, "model", lambda _: spare.pop())
        facts, *rest = executor.run([resolve(cell)])
    assert facts.description is not None
    (environment,) = facts.description["environments"].values()
    assert environment["device"] == "cuda (Pretended)"
    records = [record for delivery in rest for record in delivery.records]
    assert [record["status"] for record in records] == ["ok"], records[0].get("reason")
