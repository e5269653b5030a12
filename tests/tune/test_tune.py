"""Tuning: what it may touch, what it spends, that it goes on after a kill, and what `run` makes of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.helpers.command import tta_bench
from tta_bench import config, grid
from tta_bench.api import Choice, Log, Uniform
from tta_bench.corruptions.sets import HELD_OUT_4
from tta_bench.errors import ConfigError, UserError
from tta_bench.execution.executor import Executor
from tta_bench.execution.recorder import ResultRecorder
from tta_bench.planning.sharing import resolve
from tta_bench.plugins import registry
from tta_bench.storage.store import ResultStore
from tta_bench.tune import presets_file, sensitivity
from tta_bench.tune.budget import Budget, promising, rungs
from tta_bench.tune.command import Silent
from tta_bench.tune.goal import Goal, goals
from tta_bench.tune.ledger import Ledger
from tta_bench.tune.search import TuneSearch, prepare

FILE: dict[str, Any] = {
    "name": "small",
    "data": "cifar10-mini",
    "models": ["resnet-micro"],
    "methods": ["source", {"use": "tent", "momentum": 0.9}],
    "stream": {"corruptions": "imagenet-c-15", "rounds": 2, "batch_size": 16, "limit": 32},
    "seeds": [1, 2],
    "tune": {"budget": 1500},
}
WHOLE = 4 * 32 * 3  # what one trial of TENT takes: four domains, a forward and a backward that counts two


def benchmark(**changes: Any) -> config.Benchmark:
    return config.parse(FILE | changes)


def goal(**changes: Any) -> Goal:
    return goals(benchmark(**changes), "file")[0][0]


# -- spaces -----------------------------------------------------------------------------------------


def test_samples_stay_in_their_space() -> None:
    rng = np.random.default_rng(0)
    drawn = [Log(1e-4, 1e-2).sample(rng) for _ in range(500)]
    assert all(1e-4 <= value <= 1e-2 for value in drawn)
    assert 0.4 < np.mean([value < 1e-3 for value in drawn]) < 0.6  # orders of magnitude are alike
    assert all(0.2 <= Uniform(0.2, 0.8).sample(rng) <= 0.8 for _ in range(100))
    assert {Choice(1, "a").sample(rng) for _ in range(50)} == {1, "a"}


@pytest.mark.parametrize("make", [lambda: Log(0, 1), lambda: Uniform(2, 1), lambda: Choice(1)])
def test_a_space_without_values_is_an_error(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"low must be positive|is empty|at least two"):
        make()


def test_every_method_that_has_parameters_declares_where_to_look() -> None:
    declared = {name for name in registry.names("methods") if registry.load("methods", name).search_space}
    assert {"zoa", "foa", "tent", "sar", "eata", "cotta", "deyo", "memo", "lame", "t3a", "shift"} <= declared
    assert not registry.load("methods", "source").search_space


# -- what it may touch ------------------------------------------------------------------------------


def test_tuning_sees_the_held_out_corruptions_and_a_seed_of_its_own() -> None:
    found, idle = goals(benchmark(), "file")
    assert idle == ["source"]
    cell = found[0].cell
    assert tuple(name for name, _ in cell.domains) == HELD_OUT_4
    assert (cell.seed, cell.rounds) == (7, 1)
    assert list(found[0].spaces) == ["lr"]  # momentum is given
    assert found[0].params(0) == {"lr": 2.5e-4}  # the preset of residual networks


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tune": {"corruptions": ["spatter", "fog"]}}, r"tune\.corruptions: fog: .*Use held-out-4"),
        (
            {"tune": {"corruptions": "imagenet-c-15"}},
            r"tune\.corruptions: gaussian_noise, .*jpeg_compression",
        ),
        ({"tune": None}, r"stream\.corruptions: gaussian_noise.*Add `tune: \{corruptions: held-out-4\}`"),
        ({"tune": {"seed": 2}}, r"tune\.seed: 2 is among the benchmark's own seeds"),
        ({"tune": {"corruptions": "spater"}}, r'tune\.corruptions: unknown corruption "spater"'),
        ({"tune": {"budgets": 3}}, r"tune\.budgets: unknown field. Did you mean \"budget\""),
    ],
)
def test_what_tables_are_made_of_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        goals(benchmark(**changes), "file")


def test_a_file_for_tuning_alone_needs_no_section() -> None:
    stream = FILE["stream"] | {"corruptions": ["spatter", "saturate"]}
    assert goal(tune=None, stream=stream).cell.domains == (("spatter", 5), ("saturate", 5))


def test_the_command_refuses_with_place_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(yaml.safe_dump(FILE | {"tune": {"corruptions": ["fog"]}}))
    outcome = tta_bench("tune", path, "--results", tmp_path / "results")
    assert outcome.returncode == 2
    problem = "tune.corruptions: fog: test corruptions cannot be used for tuning. Use held-out-4."
    assert problem in outcome.stderr
    assert not (tmp_path / "results").exists()


# -- decisions --------------------------------------------------------------------------------------


def book(tmp_path: Path, *trials: list[float]) -> Ledger:
    """A ledger with the accuracies of some trials."""
    store = ResultStore(tmp_path, "book")
    store.records_folder.mkdir(parents=True)
    ledger = Ledger(store, goal())
    for number, accuracies in enumerate(trials):
        ledger.begin(number, goal().params(number), goal().cell.code)
        for step, accuracy in enumerate(accuracies):
            ledger.step(number, step, accuracy, 96)
    return ledger


def test_rungs_are_powers_of_two_before_the_end() -> None:
    assert [rungs(steps) for steps in (1, 2, 4, 5)] == [[], [1], [1, 2], [1, 2, 4]]


def test_the_worse_half_is_stopped_and_trial_0_never(tmp_path: Path) -> None:
    ledger = book(tmp_path, [10.0], [60.0], [30.0], [61.0], [20.0, 90.0, 10.0])
    assert [promising(ledger, n, 4) for n in range(5)] == [True, True, False, True, True]
    ledger.step(2, 1, 10.0, 96)  # two domains: one more rung, and it is worse than trial 4 there
    assert not promising(ledger, 2, 4)


def test_a_budget_keeps_what_running_trials_may_still_take(tmp_path: Path) -> None:
    ledger = book(tmp_path, [50.0] * 4, [50.0])
    ledger.end(0, "complete")
    budget = Budget(images=1100, steps=4, declared=1)
    assert (ledger.spent, ledger.step_cost, budget.whole(ledger)) == (480, 96, 384)
    assert budget.allows(ledger, running=[])
    assert not budget.allows(ledger, running=[1])  # 480 spent, 288 owed, 384 to come
    assert Budget(1152, 4, 1).allows(ledger, running=[1])


def test_the_ledger_is_read_back_as_it_was(tmp_path: Path) -> None:
    ledger = book(tmp_path, [50.0, 51.0], [40.0])
    ledger.end(0, "complete")
    ledger.end(1, "early")
    again = Ledger(ledger.store, goal())
    assert again.trials == ledger.trials
    best = again.best()
    assert best is not None
    assert (best.number, best.score()) == (0, 50.5)


# -- a search, in this process ----------------------------------------------------------------------


class Killed(Exception):
    """The process is gone."""


def searched(results: Path, target: Goal, images: int = 1500, steps: int | None = None) -> TuneSearch:
    """A search as Ray Tune drives it, one trial at a time; killed after so many domains if asked to."""
    store = ResultStore(results, "search")
    lock = store.open([])
    writer = ResultRecorder(store, Silent(quiet=True), anew=[])
    search = prepare(target, images, writer, lambda: False, lambda text: None)
    executor, waiting = Executor(), search.resumed()
    try:
        while True:
            number = waiting.pop(0) if waiting else search.next_number()
            if number is None:
                return search
            if number not in search.ledger.trials:
                search.begin(number)
            start = search.started(number)
            left = target.steps - len(start.finished)
            for delivery in executor.run([resolve(target.trial(number))], [start]):
                left -= bool(delivery.records)
                if not search.received(number, [delivery], done=left == 0):
                    break
                if steps is not None and (steps := steps - 1) < 0:
                    raise Killed
    finally:
        lock.release()


def test_a_search_spends_its_budget_and_no_more(tmp_path: Path) -> None:
    search = searched(tmp_path, goal())
    ledger = search.ledger
    assert 1500 - WHOLE < ledger.spent <= 1500
    assert ledger.trials[0].ended == "complete"
    assert all(trial.ended in ("complete", "early") for trial in ledger.trials.values())
    recorded = [r for n in ledger.trials for r in search.writer.store.read(search.goal.trial(n).key)]
    assert sum(r["forward_images"] + 2 * r["backward_images"] for r in recorded) == ledger.spent
    assert {r["corruption"] for r in recorded} <= set(HELD_OUT_4)


def test_a_killed_search_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole = searched(tmp_path / "whole", goal()).ledger
    for steps in (2, 3, 1):
        with pytest.raises(Killed):
            searched(tmp_path / "killed", goal(), steps=steps)
    resumed = searched(tmp_path / "killed", goal()).ledger
    assert resumed.trials == whole.trials
    again = searched(tmp_path / "killed", goal()).ledger
    assert again.spent == whole.spent


@pytest.mark.parametrize("what", ["tta_bench.tune.ledger.Ledger.step", "tta_bench.tune.search.promising"])
def test_a_kill_between_a_record_and_the_decision_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    whole = searched(tmp_path / "whole", goal(), images=3 * WHOLE).ledger
    calls = iter(range(100))

    def killed(*arguments: Any) -> Any:
        if next(calls) == 4:
            raise Killed
        return real(*arguments)

    real = Ledger.step if "Ledger" in what else promising
    with monkeypatch.context() as patch:
        patch.setattr(what, killed)
        with pytest.raises(Killed):
            searched(tmp_path / "killed", goal(), images=3 * WHOLE)
    assert searched(tmp_path / "killed", goal(), images=3 * WHOLE).ledger.trials == whole.trials


def test_more_budget_goes_on_with_the_same_search(tmp_path: Path) -> None:
    first = searched(tmp_path, goal(), images=2 * WHOLE).ledger
    more = searched(tmp_path, goal(), images=4 * WHOLE).ledger
    assert len(more.trials) > len(first.trials)
    assert all(more.trials[number].params == trial.params for number, trial in first.trials.items())


def test_what_cannot_run_ends_at_once(tmp_path: Path) -> None:
    target = goal(quantizers=[{"use": "uniform", "bits": "W8A8"}])
    ledger = searched(tmp_path, target).ledger
    assert [trial.ended for trial in ledger.trials.values()] == ["unsupported"]
    assert presets_file.content("small", 1500, [ledger])["presets"] == []


def test_a_small_space_is_searched_to_its_end(tmp_path: Path) -> None:
    target = goal(methods=[{"use": "lame", "affinity": "knn"}])
    ledger = searched(tmp_path, target, images=10**6).ledger
    assert sorted(trial.params["k"] for trial in ledger.trials.values()) == [1, 3, 5, 10]


def test_a_budget_below_one_trial_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"tune\.budget: 100 forward passes do not cover .* takes 384"):
        searched(tmp_path, goal(), images=100)


def test_a_changed_space_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searched(tmp_path, goal(), images=2 * WHOLE)
    cls = registry.load("methods", "tent")
    monkeypatch.setattr(cls, "search_space", {"lr": Log(1e-3, 1.0)})
    with pytest.raises(UserError, match="search space of tent on resnet-micro FP32 has changed"):
        searched(tmp_path, goal())


def test_sensitivity_tells_of_every_trial(tmp_path: Path) -> None:
    search = searched(tmp_path, goal())
    table = sensitivity.table([search.ledger])
    assert {line.parameter for line in table} == {"lr"}
    assert sum(line.trials for line in table) == len(search.ledger.trials)
    assert max(line.best for line in table if line.best is not None) == search.ledger.best().score()  # type: ignore[union-attr]
    assert sensitivity.to_csv(table).splitlines()[0] == ",".join(sensitivity.HEADER)
    assert "tent on resnet-micro FP32" in sensitivity.to_text(table)


# -- presets ----------------------------------------------------------------------------------------


@pytest.fixture
def presets(tmp_path: Path) -> Path:
    """A presets file that sets TENT's learning rate where momentum 0.9 is given."""
    ledger = book(tmp_path, [50.0] * 4, [60.0] * 4)
    for number in (0, 1):
        ledger.end(number, "complete")
    path = tmp_path / "presets.yaml"
    presets_file.write(path, presets_file.content("small", 1500, [ledger]))
    return path


def learning_rates(found: config.Benchmark) -> set[float]:
    return {cell.method.params["lr"] for cell in grid.expand(found) if cell.method.use == "tent"}


def test_a_run_takes_what_was_found(presets: Path) -> None:
    best = goal().params(1)["lr"]
    body = yaml.safe_load(presets.read_text())
    assert body["presets"][0]["set"] == {"lr": best}
    assert body["presets"][0]["accuracy"] == 60.0
    assert body["presets"][0]["untuned"] == 50.0
    assert body["tuned_on"]["corruptions"] == list(HELD_OUT_4)
    plain, tuned = benchmark(), presets_file.applied(benchmark(), presets)
    assert learning_rates(tuned) == {best}
    keys = [
        {cell.key for cell in grid.expand(found) if cell.method.use == "tent"} for found in (plain, tuned)
    ]
    assert keys[0].isdisjoint(keys[1])


@pytest.mark.parametrize(
    "changes",
    [
        {"methods": [{"use": "tent", "momentum": 0.9, "lr": 0.5}]},
        {"presets": [{"method": "tent", "set": {"lr": 0.5}}]},
    ],
)
def test_what_the_file_says_wins(presets: Path, changes: dict[str, Any]) -> None:
    assert learning_rates(presets_file.applied(benchmark(**changes), presets)) == {0.5}


@pytest.mark.parametrize("changes", [{"models": ["vit-micro"]}, {"methods": ["tent"]}])
def test_presets_are_for_what_was_tuned_only(presets: Path, changes: dict[str, Any]) -> None:
    plain = benchmark(**changes)
    assert learning_rates(presets_file.applied(plain, presets)) == learning_rates(plain)


def _edited(path: Path, seal: bool, **changes: Any) -> Path:
    body = yaml.safe_load(path.read_text())
    body["presets"][0] |= changes
    if seal:
        body["seal"] = presets_file.seal(body)
    path.write_text(yaml.safe_dump(body))
    return path


def test_a_presets_file_that_was_tampered_with_is_refused(presets: Path, tmp_path: Path) -> None:
    _edited(presets, seal=False, set={"lr": 0.1})
    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump(FILE))
    outcome = tta_bench("run", file, "--presets", presets, "--results", tmp_path / "results")
    assert outcome.returncode == 2
    assert f"{presets}: was changed since `tta-bench tune` wrote it" in outcome.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "tnet"}, r"presets\[0\]\.method: .*Did you mean \"tent\""),
        ({"set": {"lrr": 1}}, r"presets\[0\]\.set\.lrr: unknown field. Did you mean \"lr\""),
        ({"trials": "many"}, r"presets\.0\.trials"),
    ],
)
def test_a_wrong_presets_file_is_told(presets: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        presets_file.applied(benchmark(), _edited(presets, seal=True, **changes))


def test_a_run_with_the_seed_of_the_search_is_refused(presets: Path) -> None:
    with pytest.raises(ConfigError, match=r"tuned_on\.seed: 7: is among the seeds"):
        presets_file.applied(benchmark(seeds=[7]), presets)


def test_any_yaml_is_no_presets_file(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(yaml.safe_dump(FILE))
    with pytest.raises(UserError, match="Is it a presets file"):
        presets_file.applied(benchmark(), path)


# -- with Ray ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ray_tune_killed_and_started_again(tmp_path: Path) -> None:
    """The driver is killed after the first domains; the same command goes on, and `run` takes the presets."""
    path, results, out = tmp_path / "file.yaml", tmp_path / "results", tmp_path / "presets.yaml"
    path.write_text(yaml.safe_dump(FILE))
    command = [sys.executable, "-m", "tta_bench.cli", "tune", str(path), "--workers", "1"]
    command += ["--results", str(results), "--output", str(out)]
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    ledger = results / "small.tune" / "records" / f"trials.{goal().cell.key}.jsonl"
    deadline = time.monotonic() + 200
    while not (ledger.exists() and ledger.read_text().count('"step"') >= 2):
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    before = ledger.read_text()
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert outcome.returncode == 0, outcome.stderr
    assert ledger.read_text().startswith(before)
    search = searched(tmp_path / "alone", goal())
    found = Ledger(ResultStore(results, "small.tune"), goal())
    assert found.trials == search.ledger.trials  # the same as without Ray and without a kill
    cells = json.loads((results / "small.tune" / "benchmark.json").read_text())["cells"]
    assert len(cells) == len(found.trials)
    best = found.best()
    assert best is not None
    assert learning_rates(presets_file.applied(benchmark(), out)) == {best.params["lr"]}
