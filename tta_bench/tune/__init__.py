"""`tta-bench tune`: random search for the parameters of each method, with equal budgets, on held-out data.

    Benchmark ─goal.goals→ [Goal] ─search.tune (Ray Tune; trial by trial into the results folder)→ Outcome
      ─presets_file.write→ presets.yaml, which `run --presets` takes
      ─sensitivity.table→ the effect of each parameter

A trial is a cell: it has the same executor, records and checkpoints as those of a run.
"""
