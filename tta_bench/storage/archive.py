"""What travels as text in the log of a Ray job, and back: a results folder, or any other content."""

from __future__ import annotations

import base64
import io
import re
import zipfile
from pathlib import Path

from tta_bench import files
from tta_bench.errors import UserError
from tta_bench.storage.manifest import MANIFEST

FOLDERS = ("records", "cells")
BEGIN, END = "-----BEGIN TTA-BENCH RESULTS-----", "-----END TTA-BENCH RESULTS-----"
WIDTH = 1000  # characters in a line
DAMAGED = "The results that the cluster sent are damaged. Run the same command again."
MOST_BYTES = 2**33  # of one unpacked file, which is more than any benchmark writes


def packed(folder: Path) -> str:
    """The manifest, descriptions and records of a benchmark's folder as text; an error if there are none."""
    if files.content_of(files.plain_file(folder, MANIFEST)) is None:
        raise UserError(f"{folder}: no results here. The run writes them once it has checked its inputs.")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, files.content_of(files.plain_file(folder, MANIFEST)) or b"")
        for name in FOLDERS:
            for path in sorted((folder / name).glob("*.json*")):
                if not path.name.endswith(files.PARTIAL):
                    content = files.content_of(files.plain_file(folder / name, path.name))
                    archive.writestr(f"{name}/{path.name}", content or b"")
    return encoded(buffer.getvalue())


def encoded(content: bytes) -> str:
    """Content as text that can be found in a log."""
    text = base64.b64encode(content).decode()
    return "\n".join([BEGIN, *(text[i : i + WIDTH] for i in range(0, len(text), WIDTH)), END])


def decoded(text: str) -> bytes:
    """The content in a log; an error if there is none."""
    found = re.search(f"{BEGIN}\n(.*?){END}", text, re.DOTALL)
    if found is None:
        raise UserError(DAMAGED)
    try:
        return base64.b64decode(found[1], validate=False)
    except ValueError:
        raise UserError(DAMAGED) from None


def unpack(text: str, folder: Path) -> None:
    """Write the files that the text holds; an error if it holds anything else."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(decoded(text)))
    except zipfile.BadZipFile:
        raise UserError(DAMAGED) from None
    with archive:
        for entry in archive.infolist():
            _extract(archive, entry, folder)


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> None:
    """Write one file of an archive, if it belongs into a results folder."""
    place, _, name = entry.filename.rpartition("/")
    known = entry.filename == MANIFEST or place in FOLDERS
    if not known or not files.KEY.fullmatch(name) or entry.file_size > MOST_BYTES:
        raise UserError(f"The results that the cluster sent hold {entry.filename!r}, which is no result.")
    target = folder / place if place else folder
    target.mkdir(parents=True, exist_ok=True)
    (target / name).write_bytes(archive.read(entry))
