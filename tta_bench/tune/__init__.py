"""`tta-bench tune`: every method's declared search space, the same budget of passes, held-out corruptions.

    Benchmark ─goal.goals→ [Goal] ─search.tune (Ray Tune; trial by trial into the results folder)→ Outcome
      ─presets_file.write→ presets.yaml, which `run --presets` takes
      ─sensitivity.table→ what each parameter does

A trial is a cell like any other: the same executor, records and checkpoints.
"""
