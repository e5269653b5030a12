"""Ray Tune's three questions, answered by a search: what next, does this trial go on, is it time to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ray.tune import Stopper
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

if TYPE_CHECKING:
    from tta_bench.tune.search import Search


class Candidates(Searcher):
    """What next: trials that were begun, then new ones of the first search whose budget allows another."""

    def __init__(self, searches: Sequence[Search], begun: Sequence[tuple[int, int]]) -> None:
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
        # Trials that run may yet be stopped early, and leave something.
        return None if any(search.running for search in self.searches) else Searcher.FINISHED

    def _give(self, index: int, number: int) -> dict[str, int]:
        self.searches[index].running.add(number)
        return {"search": index, "number": number}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """The ledger knows already."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is on the disk."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: Tune's own folder is never read."""


class Decider(FIFOScheduler):
    """Whether a trial goes on; every result passes here, and is written down before that is decided."""

    def __init__(self, searches: Sequence[Search]) -> None:
        super().__init__()
        self.searches = searches

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        search, number = self._of(trial)
        going_on = search.received(number, result.pop("deliveries"), done=False)
        return TrialScheduler.CONTINUE if going_on else TrialScheduler.STOP

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        if "deliveries" in result:
            search, number = self._of(trial)
            search.received(number, result.pop("deliveries"), done=True)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        search, number = self._of(trial)
        search.running.discard(number)
        search.say(f"{search.goal.name}, trial {number}: its worker has died; it goes on in another.")

    def _of(self, trial: Any) -> tuple[Search, int]:
        return self.searches[trial.config["search"]], trial.config["number"]


class Halt(Stopper):
    """Whether to stop everything: when the user has asked for it."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        self.stop = stop

    def __getstate__(self) -> dict[str, Any]:
        """Nothing, as of a search."""
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.stop()
