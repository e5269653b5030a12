"""Run a benchmark on two Ray nodes, kill one of them half-way, and compare with an undisturbed run.

python tools/lose_node.py benchmark.yaml
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from loopback import Cluster, Run, kill_session, wait_for

TIMEOUT_SECONDS = 3600.0


def lose_node(file: Path, folder: Path) -> dict[str, Any]:
    """An undisturbed run, then one that loses a node for good, on the same cluster; return the figures."""
    cluster = Cluster(folder / "ray")
    try:
        calm = Run(file, folder / "calm", cluster)
        calm_seconds = _finish(calm.start(folder / "calm.log"), folder / "calm.log")
        total = len(calm.records())
        disturbed, log = Run(file, folder / "disturbed", cluster), folder / "disturbed.log"
        begun = time.monotonic()
        driver = disturbed.start(log)
        wait_for(lambda: len(disturbed.records()) >= total / 2 or driver.poll() is not None, TIMEOUT_SECONDS)
        seen = disturbed.records()
        kill_session(cluster.other)
        lost_after = time.monotonic() - begun
        return {
            "records": total,
            "records_at_the_loss": len(seen),
            "calm_seconds": round(calm_seconds),
            "seconds_until_the_loss": round(lost_after),
            "seconds_after_the_loss": round(_finish(driver, log)),
            "records_lost": len(seen - disturbed.records()),
            "same_tables": disturbed.tables() == calm.tables(),
        }
    finally:
        cluster.stop()


def _finish(driver: subprocess.Popen[bytes], log: Path) -> float:
    """Seconds until a run has ended; exits if it failed."""
    begun = time.monotonic()
    if driver.wait(timeout=TIMEOUT_SECONDS) != 0:
        raise SystemExit(f"exit {driver.returncode}:\n{log.read_text(errors='replace')[-2000:]}")
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path, help="a benchmark file")
    with tempfile.TemporaryDirectory(prefix="lose-node-") as folder:
        found = lose_node(parser.parse_args().file, Path(folder))
    print(json.dumps(found, indent=1))
    if not found["same_tables"] or found["records_lost"]:
        raise SystemExit("something was lost: see above")


if __name__ == "__main__":
    main()
