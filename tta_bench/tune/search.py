"""The searches of a tuning run: Ray Tune runs the trials, and their results are written to disk first.

Ray Tune writes pickles to its own folder, which is temporary and never read. The state of a search is in its
ledger, and the cells of its trials are in the results folder, like those of any run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tta_bench.errors import UserError
from tta_bench.execution.messages import Delivery, RunPolicy, Start
from tta_bench.execution.ray.capacity import no_capacity
from tta_bench.execution.ray.environment import temporary_environment
from tta_bench.execution.recorder import ResultRecorder
from tta_bench.planning.sharing import resolve
from tta_bench.planning.tasks import Task
from tta_bench.storage.record import Record, round_and_domain
from tta_bench.tune.budget import MOST_REPEATS, Budget, promising
from tta_bench.tune.goal import Goal
from tta_bench.tune.ledger import Ledger, TuneTrial, passes

MAX_FAILURES = 3  # failed trials; they cost so little that the budget would never end
MAX_SESSIONS = 3  # a trial whose worker dies continues in another session
# Keep Tune from writing its own logs, changing the working directory, and handling Ctrl-C.
TUNE_SETTINGS = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


@dataclass
class TuneSearch:
    """The search for one goal: its ledger, its running trials, and its next trial."""

    goal: Goal
    budget: Budget
    ledger: Ledger
    writer: ResultRecorder
    stop: Callable[[], bool]
    say: Callable[[str], None]
    running: set[int] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles this object into its own folder, which nobody reads."""
        return {}

    def resumed(self) -> list[int]:
        """The unfinished trials; raises an error if code or search space has changed since they began."""
        for number, trial in self.ledger.trials.items():
            same_space = trial.params == self.goal.params(number)
            if not same_space or trial.code != self.goal.cell.code:
                what = "code" if same_space else "search space"
                raise UserError(
                    f"{self.writer.store.folder}: the {what} of {self.goal.name} has changed since. "
                    "Choose another --results folder, or remove this one."
                )
        for number in self.ledger.open():
            self._catch_up(number)
        return self.ledger.open()

    def _catch_up(self, number: int) -> None:
        """Complete the ledger after a kill: add domains that were recorded, and the decision after them."""
        trial, cell, store = self.ledger.trials[number], self.goal.trial(number), self.writer.store
        store.expect(cell.key, cell.visits, cell.rounds)
        for record in store.read(cell.key):
            ran = record["status"] == "ok" and "repeats" not in record
            if ran and self._step_of(record) not in trial.accuracies:
                self._stepped(number, record, passes([record]))
        if trial.accuracies:
            self._decide(number, done=len(trial.accuracies) == self.goal.steps)

    def next_number(self) -> int | None:
        """The number of the next trial; None if the budget or the search space is exhausted."""
        ended = [trial.ended for trial in self.ledger.trials.values()]
        if "unsupported" in ended or ended.count("failed") >= MAX_FAILURES:
            return None
        if not self.budget.allows(self.ledger, sorted(self.running)):
            return None
        tried = [trial.params for trial in self.ledger.trials.values()]
        first = max(self.ledger.trials, default=-1) + 1
        untried = (n for n in range(first, first + MOST_REPEATS) if self.goal.params(n) not in tried)
        return next(untried, None)

    def begin(self, number: int) -> None:
        """Record that a new trial begins."""
        self.ledger.begin(number, self.goal.params(number), self.goal.cell.code)
        self.started(number)

    def started(self, number: int) -> Start:
        """Where the cell of a trial starts; the memory of a step is not counted for trials."""
        return replace(self.writer.started(Task((resolve(self.goal.trial(number)),)))[0], described=True)

    def received(self, number: int, deliveries: list[Delivery], done: bool) -> bool:
        """Record the results of a step; returns whether the trial continues."""
        if self.ledger.trials[number].ended:  # Tune reports the last result of a stopped trial twice
            return False
        for delivery in deliveries:
            self.writer.delivered(delivery)
            for record in delivery.records[:1]:
                if record["status"] != "ok":
                    reason = record["reason"].strip().splitlines()[-1]
                    return self._ended(number, record["status"], reason)
                self._stepped(number, record, passes(delivery.records))
        return self._decide(number, done) if any(each.records for each in deliveries) else True

    def _decide(self, number: int, done: bool) -> bool:
        """End a trial that is complete or not promising; returns whether it continues."""
        if done:
            return self._ended(number, "complete")
        if not promising(self.ledger, number, self.goal.steps):
            return self._ended(number, "early")
        return True

    def _step_of(self, record: Record) -> int:
        round, *place = round_and_domain(record)
        return resolve(self.goal.cell).position(round, tuple(place))

    def _stepped(self, number: int, record: Record, spent: int) -> None:
        accuracy = 100 * record["correct"] / record["images"]
        self.ledger.step(number, self._step_of(record), accuracy, spent)

    def _ended(self, number: int, how: Any, reason: str = "") -> bool:
        self.ledger.end(number, how, reason)
        self.running.discard(number)
        if how == "early":
            self.writer.checkpoints.remove(self.goal.trial(number).key)
        self.say(_summary(self, self.ledger.trials[number]))
        return False


def _summary(search: TuneSearch, trial: TuneTrial) -> str:
    """One line about a trial that has ended."""
    params = ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in trial.params.items()
    )
    done = f"{len(trial.accuracies)} of {search.goal.steps} domains"
    result = f"{trial.score():.2f} % after {done}" if trial.accuracies else trial.reason
    spent = f"{search.ledger.spent:,} of {search.budget.images:,} forward passes"
    stopped = {"early": ", stopped early", "failed": f", failed: {trial.reason}"}.get(trial.ended or "", "")
    return f"{search.goal.name}, trial {trial.number} ({params}): {result}{stopped}. {spent}."


def prepare(
    goal: Goal, images: int, writer: ResultRecorder, stop: Callable[[], bool], say: Callable[[str], None]
) -> TuneSearch:
    """The search for a goal, resumed from its ledger; raises an error if the budget is below one trial."""
    cell = goal.cell
    count = cell.count(len(cell.data.make().test_labels()))
    budget = Budget(images, goal.steps, round(count * resolve(cell).step_passes))
    search = TuneSearch(goal, budget, Ledger(writer.store, goal), writer, stop, say)
    if not search.ledger.trials and budget.whole(search.ledger) > images:
        raise UserError(
            f"tune.budget: {images:,} forward passes do not cover one trial of {goal.name}, which takes "
            f"{budget.whole(search.ledger):,}. Raise it, or lower tune.limit."
        )
    return search


def tune(searches: Sequence[TuneSearch], policy: RunPolicy, workers: int | None) -> None:
    """Run trials until all budgets are spent; Ray must be connected."""
    with temporary_environment(TUNE_SETTINGS):
        for _ in range(MAX_SESSIONS):
            _session(searches, policy, workers)
            if searches[0].stop() or not any(search.ledger.open() for search in searches):
                break


def _resources(policy: RunPolicy) -> dict[str, float]:
    """The resources of a trial; with a share of a GPU if the cluster has any and the device is not `cpu`."""
    import ray

    gpus = 0 if policy.device == "cpu" else ray.cluster_resources().get("GPU", 0)
    if policy.device == "cuda" and not gpus:
        raise UserError(f"Ray: {no_capacity(policy)}")
    return {"cpu": policy.threads, "gpu": policy.gpus if gpus else 0}


def _session(searches: Sequence[TuneSearch], policy: RunPolicy, workers: int | None) -> None:
    """One run of Ray Tune over all searches."""
    from ray import tune as ray_tune

    from tta_bench.tune.bridge import Candidates, Decider, Halt, TrialRun

    begun = [(i, number) for i, search in enumerate(searches) for number in search.resumed()]
    starts = {(i, n): searches[i].started(n) for i, n in begun}
    goals = [search.goal for search in searches]
    ready = ray_tune.with_parameters(TrialRun, goals=goals, policy=policy, starts=starts)
    with tempfile.TemporaryDirectory(prefix="tta-bench-tune-") as folder:
        tuner = ray_tune.Tuner(
            ray_tune.with_resources(ready, _resources(policy)),
            tune_config=ray_tune.TuneConfig(
                search_alg=Candidates(searches, begun),
                scheduler=Decider(searches),
                num_samples=-1,
                max_concurrent_trials=workers,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=ray_tune.RunConfig(
                storage_path=folder, name="search", verbose=0, stop=Halt(searches[0].stop)
            ),
        )
        tuner.fit()
    for search in searches:
        search.running.clear()
