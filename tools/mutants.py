"""Put small defects into the modules that numbers rest on, one at a time, and see whether the tests notice.

    python tools/mutants.py                               all modules; make mutants does the same
    python tools/mutants.py --module store --sample 60    60 mutants of one module
    python tools/mutants.py --again                       those that survived the last time
    python tools/mutants.py --module store --list
    python tools/mutants.py --show store:0123abcd

The report is in build/mutants: a score for each module, and the diff of each mutant that survived. Mutants
that compute the same as the original are listed in tools/mutants_accepted.txt, each with the reason.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mutation import report
from mutation.generate import Mutant, mutants

ROOT = Path(__file__).parents[1]
ACCEPTED = Path(__file__).with_name("mutants_accepted.txt")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every mutant that ran was killed, 1 otherwise."""
    options = _parser().parse_args(arguments)
    generated = _generated(options.module, options.commit)
    listed = report.accepted(ACCEPTED)
    chosen = _chosen(generated, options, listed)
    if options.list or options.show:
        _print(chosen, diffs=bool(options.show))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what is running, and saves the report
    for name in THREADS:  # before numpy and torch are imported, which is before the first fork
        os.environ.setdefault(name, "1")
    earlier = report.load(options.out) if options.again else []
    found = _run(chosen, listed, options, earlier)
    old = report.stale(listed, generated)
    report.save(options.out, found, old)
    print(report.markdown(found, old))
    killed, counted = report.score(found)
    return int(killed < counted)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--module", action="append", help="name of a module, as `store`; default: all")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="run these instead of the module's own")
    parser.add_argument("--sample", type=int, help="so many mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument(
        "--commit", help="mutate this commit, not the working tree, which may be edited meanwhile"
    )
    parser.add_argument("--again", action="store_true", help="only the survivors of the last report")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--show", metavar="ID", help="print the diff of one mutant")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants", help="folder of the report")
    return parser


def _generated(names: Sequence[str] | None, commit: str | None) -> list[Mutant]:
    from mutation.sandbox import source_of
    from mutation.targets import TARGETS

    paths = [path for path in TARGETS if names is None or Path(path).stem in names]
    unknown = set(names or ()) - {Path(path).stem for path in paths}
    if unknown:
        known = ", ".join(Path(path).stem for path in TARGETS)
        raise SystemExit(f"--module {', '.join(sorted(unknown))}: unknown. Modules: {known}.")
    return [mutant for path in paths for mutant in mutants(path, source_of(path, commit))]


def _chosen(generated: Sequence[Mutant], options: argparse.Namespace, listed: dict[str, str]) -> list[Mutant]:
    """The mutants that the options ask for."""
    if options.show:
        return [mutant for mutant in generated if mutant.id == options.show]
    if options.again:
        survived = {v.id for v in report.load(options.out) if v.status in ("survived", "not executed")}
        return [mutant for mutant in generated if mutant.id in survived]
    if options.sample is None:
        return list(generated)
    chosen = []
    for path in dict.fromkeys(mutant.path for mutant in generated):
        own = [mutant for mutant in generated if mutant.path == path]
        drawn = random.Random(options.seed).sample(range(len(own)), min(options.sample, len(own)))
        chosen += [own[i] for i in sorted(drawn)]
    return chosen


def _print(chosen: Sequence[Mutant], diffs: bool) -> None:
    for mutant in chosen:
        print(mutant.id, mutant.place, mutant.operator)
        if diffs:
            print(mutant.diff)


def _run(
    chosen: Sequence[Mutant],
    listed: dict[str, str],
    options: argparse.Namespace,
    earlier: list[report.Verdict],
) -> list[report.Verdict]:
    """The verdicts on all chosen mutants, in the place of earlier ones."""
    from mutation import campaign
    from mutation.sandbox import Sandbox
    from mutation.targets import TARGETS

    found = {verdict.id: verdict for verdict in earlier}
    found |= {m.id: report.verdict(m, "accepted", listed[m.id]) for m in chosen if m.id in listed}

    def tell(verdict: report.Verdict) -> None:
        found[verdict.id] = verdict
        if verdict.status not in report.KILLED:
            print(f"{verdict.status}: {verdict.id} {verdict.place}\n{verdict.diff}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        sandboxes = [Sandbox(Path(folder) / str(job), commit=options.commit) for job in range(options.jobs)]
        for path in dict.fromkeys(mutant.path for mutant in chosen):
            own = [mutant for mutant in chosen if mutant.path == path and mutant.id not in listed]
            base = campaign.baseline(sandboxes[0], path, options.tests or TARGETS[path])
            start, tests = time.monotonic(), f"{len(base.seconds)} tests, {base.cpu_seconds:.1f} s"
            print(f"{path}: {len(own)} mutants, {tests}", flush=True)
            try:
                campaign.verdicts(sandboxes, base, own, tell)
            except KeyboardInterrupt:
                print("Stopped; the report has what was found so far.", flush=True)
                break
            finally:
                report.save(options.out, list(found.values()), [])
            print(f"{path}: {time.monotonic() - start:.0f} s", flush=True)
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
