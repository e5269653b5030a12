"""Files of a results folder, which may come from others: a name is never a path, a file never a link."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from tta_bench.errors import UserError, shown

# No separator, no leading dot or dash, nothing that a terminal or a shell would obey.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+:@=-]{0,219}")


def plain_name(name: object, pattern: re.Pattern[str], place: Path, what: str) -> str:
    """The name, if it is one; whoever makes a path of it stays in the folder."""
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise UserError(
            f"{place}: {shown(name)} is not {what}: only letters, digits, dots, dashes and the like. "
            "Do not use this folder, or rename what is called so."
        )
    return name


def plain_folder(path: Path) -> Path:
    """The folder, whether it is there or not; refused if it is a link to elsewhere."""
    if path.is_symlink():
        raise UserError(
            f"{path}: is a symbolic link, and results are not written through links. Put the folder there."
        )
    return path


def plain_file(folder: Path, name: str) -> Path:
    """The path of a file, whether it is there or not; refused if there is anything but a plain file."""
    path = plain_folder(folder) / name
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return path
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}. Check the folder.") from error
    if not stat.S_ISREG(mode):
        raise UserError(f"{path}: is not a plain file. Remove it, or copy what it links to there.")
    return path


def content_of(path: Path) -> bytes | None:
    """What a file holds; None if it is not there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}. Check its permissions.") from error
