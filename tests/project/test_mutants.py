"""The mutation testing tool: what it changes, what it runs, what it reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


def changed(source: str) -> set[str]:
    """The lines that mutants put into a source."""
    from mutation.generate import mutants

    lines = [line for mutant in mutants("x.py", source) for line in mutant.diff.splitlines()]
    return {line[1:].strip() for line in lines if line.startswith("+")}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = b < c", {"a = b <= c", "a = b >= c"}),
        ("a = b in c", {"a = b not in c"}),
        ("a = b + c", {"a = b - c"}),
        ("a += b", {"a -= b", "pass"}),
        ("a = b and c", {"a = b or c", "a = b", "a = c"}),
        ("a = not b", {"a = b"}),
        ("a = -b", {"a = b"}),
        ("a = 5", {"a = 6"}),
        ("a = True", {"a = False"}),
        ("a = b['c']", {"a = b['c?']"}),
        ("a = {'c': 'd'}", {"a = {'c?': 'd'}"}),
        ("a = b == 'c'", {"a = b != 'c'", "a = b == 'c?'"}),
        ("a = b[c:]", {"a = b[:]"}),
        ("a = b if c else d", {"a = d if c else b", "a = b if True else d", "a = b if False else d"}),
        ("a = [b for b in c if d]", {"a = [b for b in c if True]", "a = [b for b in c if False]"}),
        ("a = min(b)", {"a = max(b)"}),
        ("a.b = c", {"pass"}),
        ("f()", {"pass"}),
        ("def f():\n    return a", {"return None"}),
        ("def f():\n    raise a", {"pass"}),
        ("if a:\n    b = c\nelse:\n    d = e", {"if True:", "if False:", "d = e", "else:"}),
        # What a module computes does not depend on these.
        ("'''Text.'''\nfrom a import b", set()),
        ("a: Literal[5] = b", set()),
        ("@cache(5)\ndef f(a: List[5]) -> Literal[5]:\n    '''Text.'''", set()),
        ("if TYPE_CHECKING:\n    import a", set()),
        ("a = 'text for people'\nraise_ = None", set()),
    ],
)
def test_operators(source: str, expected: set[str]) -> None:
    assert changed(source) == expected


def test_ids_outlive_edits_elsewhere() -> None:
    from mutation.generate import mutants

    source = "def f(a):\n    return a < 5\n\n\ndef g(a):\n    return a < 5\n"
    before = {mutant.id: mutant.lines.start for mutant in mutants("x.py", source)}
    after = {mutant.id: mutant.lines.start for mutant in mutants("x.py", f"import b\n\nc = 1\n\n{source}")}
    assert len(before) == 8
    assert before.items() <= {name: line - 4 for name, line in after.items()}.items()


CALC = """
def kept(a):
    return a > 5


def forgotten(a):
    return a > 7


def counted(n):
    while n != 0:
        n -= 1
    return n
"""
CHOSEN = ("return a >= 5", "return a >= 7", "return None", "n += 1", "while n == 0:")
CALC_TESTS = """
from calc import counted, kept


def test_kept():
    assert kept(6) and not kept(5)


def test_counted():
    assert counted(3) == 0
"""
SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from mutation import campaign, sandbox
from mutation.generate import mutants
campaign.PATIENCE, campaign.GRACE_SECONDS = 1, 0.5
root = Path(sys.argv[2])
boxes = [sandbox.Sandbox(root.parent / f"box{i}", root) for i in range(2)]
base = campaign.baseline(boxes[0], "calc.py", ["test_calc.py"])
generated = mutants("calc.py", (root / "calc.py").read_text())
chosen = [m for m in generated if m.diff.splitlines()[-1][1:].strip() in sys.argv[3:]]
found = []
campaign.verdicts(boxes, base, chosen, found.append)
print(json.dumps([[v.diff.splitlines()[-1][1:].strip(), v.place, v.status, v.note] for v in found]))
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    root = tmp_path_factory.mktemp("mutants") / "project"
    root.mkdir()
    (root / "calc.py").write_text(CALC)
    (root / "test_calc.py").write_text(CALC_TESTS)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    command = [sys.executable, "-c", SCRIPT, str(TOOLS), str(root), *CHOSEN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (root / "calc.py").read_text() == CALC, "mutants are written to copies"
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_mutants_are_killed_by_the_tests_that_execute_them(verdicts: list[Any]) -> None:
    found = {(line, place): (status, test) for line, place, status, test in verdicts}
    assert found["return a >= 5", "calc.py:3"] == ("killed", "test_calc.py::test_kept")
    assert found["return None", "calc.py:13"] == ("killed", "test_calc.py::test_counted")
    assert found["return a >= 7", "calc.py:7"] == ("not executed", "")


@pytest.mark.slow
def test_a_mutant_that_never_ends_is_stopped(verdicts: list[Any]) -> None:
    found = {line: status for line, place, status, _ in verdicts if place in ("calc.py:11", "calc.py:12")}
    assert found["n += 1"] == "timeout"
    assert found["while n == 0:"] == "killed"


def test_mutated_modules_and_their_tests_exist() -> None:
    from mutation.targets import LEFT_OUT, TARGETS

    named = {*TARGETS, *(test for tests in TARGETS.values() for test in tests), *LEFT_OUT}
    assert not {name for name in named if not (TOOLS.parent / name.split("::")[0]).is_file()}


def test_accepted_mutants_need_a_reason_and_current_code(tmp_path: Path) -> None:
    from mutation import report
    from mutation.generate import mutants

    generated = mutants("a/calc.py", CALC)
    path = tmp_path / "accepted.txt"
    path.write_text(
        f"# a comment\n\n{generated[0].id} a reason\ncalc:00000000 of other code\nx:0 elsewhere\n"
    )
    listed = report.accepted(path)
    assert listed[generated[0].id] == "a reason"
    assert report.stale(listed, generated) == ["calc:00000000"]
    path.write_text("calc:00000000\n")
    with pytest.raises(SystemExit, match="has no reason"):
        report.accepted(path)


def test_the_report_counts_what_could_have_been_killed(tmp_path: Path) -> None:
    from mutation import report
    from mutation.generate import mutants

    statuses = ("killed", "timeout", "survived", "not executed", "accepted")
    found = [
        report.verdict(mutant, status)
        for mutant, status in zip(mutants("calc.py", CALC), statuses, strict=False)
    ]
    assert report.score(found) == (2, 4)
    report.save(tmp_path, found, [])
    assert report.load(tmp_path) == found
    text = (tmp_path / "report.md").read_text()
    assert "| `calc.py` | 5 | 2 | 1 | 2 | 50 % |" in text
    assert text.count("```diff") == 2
