"""Results as text and back; what a cluster sends may hold anything."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path

import pytest

from tta_bench.errors import UserError
from tta_bench.storage.archive import BEGIN, END, packed, unpack


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    folder = tmp_path / "far"
    files = {"benchmark.json": b"{}", "records/a.jsonl": b"1\n2\n", "cells/a.json": bytes(range(256))}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "lock").write_text("process 1")
    (folder / "records" / "a.jsonl.partial").write_text("torn")
    text = f"log of Ray\n{packed(folder)}\nmore"
    unpack(text, tmp_path / "here")
    found = {
        str(path.relative_to(tmp_path / "here")): path.read_bytes()
        for path in (tmp_path / "here").rglob("*")
        if path.is_file()
    }
    assert found == files


@pytest.mark.parametrize(
    "name", ["../evil", "records/../../evil", "/evil", "lock", "records/.hidden", "x/a.jsonl"]
)
def test_other_files_are_refused(name: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "x")
    text = f"{BEGIN}\n{base64.b64encode(buffer.getvalue()).decode()}\n{END}"
    with pytest.raises(UserError, match="which is no result"):
        unpack(text, tmp_path / "here")
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("text", ["", "nothing", f"{BEGIN}\nAAAA\n{END}", f"{BEGIN}\n???\n{END}"])
def test_damaged_text_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="damaged"):
        unpack(text, tmp_path)


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="far: no results here"):
        packed(tmp_path / "far")
