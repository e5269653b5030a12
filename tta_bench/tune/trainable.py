"""A trial as Ray Tune runs it, in a process of its own: the harness's executor, one domain a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray.tune import Trainable

from tta_bench.api import Domain
from tta_bench.exchange import Delivery, Policy, Start
from tta_bench.tune.goal import Goal

Place = tuple[int, int]  # search and number of a trial
NEW = Start(described=True)  # the bytes of a step are counted for tables, not for trials


class TrialRun(Trainable):
    """Goes through the stream of a trial's cell; a process that is done takes the next trial, warm."""

    def setup(  # type: ignore[override]
        self, config: dict[str, Any], goals: Sequence[Goal], policy: Policy, starts: Mapping[Place, Start]
    ) -> None:
        from tta_bench.execute import Executor

        self.goals, self.starts, self.executor = goals, starts, Executor(policy)
        for domain in goals[0].cell.domains:
            self.executor.prepare(goals[0].cell, Domain(*domain))
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Turn to another trial."""
        index, number = new_config["search"], new_config["number"]
        goal, start = self.goals[index], self.starts.get((index, number), NEW)
        self.deliveries = self.executor.run([goal.trial(number)], [start])
        self.left = goal.steps - len(start.finished)
        return True

    def step(self) -> dict[str, Any]:
        """What the next domain brings; `done` with the last one, or when the cell has come to an end."""
        found: list[Delivery] = []
        for delivery in self.deliveries:
            found.append(delivery)
            if delivery.records:
                break
        self.left -= 1
        over = not found or any(r.get("status", "ok") != "ok" for d in found for r in d.records)
        return {"deliveries": found, "done": over or self.left == 0}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: the results folder has the cell's own checkpoint."""
