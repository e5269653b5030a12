"""Safe file access: plain names, no symbolic links, and files that are replaced as a whole or not at all.

A results folder may come from anybody, so a name in it must never be a path, nor a file a link to elsewhere.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tta_bench.errors import UserError, shown

# No separator, no leading dot or dash, nothing that a terminal or a shell would interpret.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+:@=-]{0,219}")
PARTIAL = ".partial"  # ends the name of a file that is being written


# -- reading -----------------------------------------------------------------------------------------


def plain_name(name: object, pattern: re.Pattern[str], place: Path, what: str) -> str:
    """The name, if it fits the pattern; a path made from it then stays in its folder."""
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise UserError(
            f"{place}: {shown(name)} is not {what}: only letters, digits, dots, dashes and the like. "
            "Do not use this folder, or rename the file or benchmark."
        )
    return name


def plain_folder(path: Path) -> Path:
    """The folder, whether it exists or not; an error if it is a symbolic link."""
    if path.is_symlink():
        raise UserError(
            f"{path}: is a symbolic link, and results are not written through links. Put the folder there."
        )
    return path


def plain_file(folder: Path, name: str) -> Path:
    """The path of a file, whether it exists or not; an error if it is anything but a regular file."""
    path = plain_folder(folder) / name
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return path
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}. Check the folder.") from error
    if not stat.S_ISREG(mode):
        raise UserError(f"{path}: is not a plain file. Remove it, or replace the link by the file itself.")
    return path


def content_of(path: Path) -> bytes | None:
    """The content of a file; None if it does not exist."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}. Check its permissions.") from error


# -- writing -----------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path, sync: bool = False) -> Iterator[BinaryIO]:
    """A new file that replaces `path` when the block ends; after an error, `path` is as it was.

    With `sync`, the content is on the disk before the name is.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        with open(partial, "xb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, *parts: bytes, sync: bool = True) -> None:
    """Write a file so that a crash leaves either the old or the new content, never a mixture."""
    with replacing(path, sync) as file:
        file.writelines(parts)


@contextmanager
def write_errors(path: Path, remedy: str) -> Iterator[None]:
    """Turn an OSError into a message: which file cannot be written, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}. {remedy}") from error
