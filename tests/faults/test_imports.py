"""Plugins that misbehave while they are imported: told by name, and without harm to others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.faults.conftest import Bench
from tests.helpers.misbehaving import install
from tools.loopback import wait_for
from tta_bench.cli import app
from tta_bench.cli.listing import describe
from tta_bench.plugins import registry

EXITS = "[tta_bench.methods]\nexits = misbehaving.exits_at_import:Exits\n"
HANGS = "[tta_bench.methods]\nhangs = misbehaving.hangs_at_import:Hangs\n"
REPAINTS = "[tta_bench.methods]\nrepaints = misbehaving.repaints:Repaints\n"
EXIT_MESSAGE = (
    'method "exits" (misbehaving 1.0) cannot be imported: SystemExit: usage: exits_at_import.py INPUT '
    "OUTPUT. Reinstall or remove that package."
)
# The command line, told to wait for a quarter of a second only before it says that an import takes long.
IMPATIENT = """
from tta_bench import cli
from tta_bench.plugins import registry
registry.SLOW_SECONDS = 0.25
cli.main()
"""


def use(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Put a folder of plugins on the path of this process and of those it starts."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules of one test are not those of the next."""
    for name in [name for name in sys.modules if name.split(".")[0] == "misbehaving"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_plugin_that_exits_is_reported_like_any_other_import_error(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, install(tmp_path / "installed", EXITS))
    with pytest.raises(registry.UnknownPlugin) as found:
        registry.load("methods", "exits")
    assert str(found.value) == EXIT_MESSAGE
    rows = {row["name"]: row["what"] for row in describe("methods", long=True).data["methods"]}
    assert rows["exits"] == f"BROKEN: {EXIT_MESSAGE}"
    assert "BROKEN" not in rows["tent"]
    bench.write(["source", "exits"])
    outcome = bench.run()
    assert outcome.returncode == 2
    assert EXIT_MESSAGE in outcome.stderr


@pytest.mark.slow
def test_a_plugin_that_hangs_is_named_and_ctrl_c_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, install(tmp_path / "installed", HANGS))
    errors = tmp_path / "errors"
    with open(errors, "w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", IMPATIENT, "list", "methods", "--long"],
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )
    try:
        wait_for(lambda: 'method "hangs" (misbehaving 1.0) is still being imported' in errors.read_text())
        assert process.poll() is None, "an import is never ended by force"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
    finally:
        process.kill()
    said = errors.read_text()
    assert "(misbehaving.hangs_at_import). If that does not end, press Ctrl-C and remove" in said
    assert "Traceback" not in said


def test_an_import_that_takes_its_time_is_not_spoken_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "SLOW_SECONDS", 0.05)
    registry.load("methods", "source")  # its module is there already
    time.sleep(0.1)
    assert not capsys.readouterr().err


def test_a_plugins_own_words_do_not_reach_the_terminal(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, install(tmp_path / "installed", REPAINTS))
    bench.write(["repaints"], stream={"rounds": 1, "limit": 4})
    shown = [bench.here().stderr]
    results = ["--results", str(bench.results)]
    commands = [["status", *results], ["list", "methods", "--long"]]
    commands += [
        ["table", *results, "--format", name] for name in ("text", "markdown", "csv", "json", "html")
    ]
    shown += [CliRunner().invoke(app, command).output for command in commands]
    assert [text for text in shown if "u001b" not in text] == shown[:1], "a run says only where to look"
    assert not set("\x1b\x07\x9b\u202e\r") & set("".join(shown))
