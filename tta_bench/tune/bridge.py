"""Ray Tune's interfaces for our searches: a trial, the next one, early stopping, and the end of tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ray.tune import Stopper, Trainable
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from tta_bench.execution.messages import Delivery, RunPolicy, Start
from tta_bench.planning.sharing import resolve
from tta_bench.tune.goal import Goal

if TYPE_CHECKING:
    from tta_bench.tune.search import TuneSearch

Place = tuple[int, int]  # search and number of a trial
NEW = Start(described=True)  # memory is counted for tables, not for trials


class TrialRun(Trainable):
    """Runs the cell of a trial; the process then runs the next trial with the models already loaded."""

    def setup(  # type: ignore[override]
        self, config: dict[str, Any], goals: Sequence[Goal], policy: RunPolicy, starts: Mapping[Place, Start]
    ) -> None:
        from tta_bench.execution.executor import Executor

        self.goals, self.starts, self.executor = goals, starts, Executor(policy)
        for domain in goals[0].cell.visited:
            self.executor.prepare(goals[0].cell, domain)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start another trial."""
        index, number = new_config["search"], new_config["number"]
        goal, start = self.goals[index], self.starts.get((index, number), NEW)
        self.deliveries = self.executor.run([resolve(goal.trial(number))], [start])
        self.left = goal.steps - len(start.finished)
        return True

    def step(self) -> dict[str, Any]:
        """Run the next domain; `done` after the last one, or if the cell has stopped."""
        found: list[Delivery] = []
        for delivery in self.deliveries:
            found.append(delivery)
            if delivery.records:
                break
        self.left -= 1
        over = not found or any(r.get("status", "ok") != "ok" for d in found for r in d.records)
        return {"deliveries": found, "done": over or self.left == 0}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the results folder has the checkpoint of the cell."""


class Candidates(Searcher):
    """The next trial: unfinished ones, then a new one of the first search whose budget allows it."""

    def __init__(self, searches: Sequence[TuneSearch], begun: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.searches, self.begun = searches, list(begun)

    def suggest(self, trial_id: str) -> Any:
        if self.searches[0].stop():
            return Searcher.FINISHED
        if self.begun:
            return self._give(*self.begun.pop(0))
        for index, search in enumerate(self.searches):
            number = search.next_number()
            if number is not None:
                search.begin(number)
                return self._give(index, number)
        # A running trial may stop early, which leaves budget for another.
        return None if any(search.running for search in self.searches) else Searcher.FINISHED

    def _give(self, index: int, number: int) -> dict[str, int]:
        self.searches[index].running.add(number)
        return {"search": index, "number": number}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Nothing: the ledger has the result."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is on disk."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: Tune's own folder is never read."""


class Decider(FIFOScheduler):
    """Records every result of a trial, then decides whether the trial continues."""

    def __init__(self, searches: Sequence[TuneSearch]) -> None:
        super().__init__()
        self.searches = searches

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        search, number = self._of(trial)
        continues = search.received(number, result.pop("deliveries"), done=False)
        return TrialScheduler.CONTINUE if continues else TrialScheduler.STOP

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        if "deliveries" in result:
            search, number = self._of(trial)
            search.received(number, result.pop("deliveries"), done=True)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        search, number = self._of(trial)
        search.running.discard(number)
        search.say(f"{search.goal.name}, trial {number}: its worker has died; it continues in another.")

    def _of(self, trial: Any) -> tuple[TuneSearch, int]:
        return self.searches[trial.config["search"]], trial.config["number"]


class Halt(Stopper):
    """Stops all trials when the user interrupts."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.stop = stop

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles this object, but nobody reads the pickle."""
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.stop()
