"""Write the results of the default benchmark as the reference `embedded`, from a complete run.

`make run && .venv/bin/python tools/embedded_reference.py`
"""

from __future__ import annotations

import sys

from tta_bench import load_results
from tta_bench.tables.embedded import FILE, wide


def main(results: str = "results") -> None:
    """Write the file that `tta-bench compare --reference embedded` reads."""
    frame = load_results(results, "quickstart")
    found = wide(frame)
    if found["key"].nunique() < frame["key"].nunique():
        sys.exit(f"{results}/quickstart: not all cells are done. Run `make run` first.")
    FILE.parent.mkdir(exist_ok=True)
    found.to_csv(FILE, index=False, lineterminator="\n")
    print(f"{FILE}: {found['key'].nunique()} cells, {FILE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
