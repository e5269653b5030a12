"""Whether image files are whole, told from their first and last bytes, and remembered.

A file whose ends look wrong is decoded before it is called damaged: a few published images carry bytes
after their end, or are not what their names say.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from tta_bench import cache
from tta_bench.data.class_folders import LISTING_THREADS, ClassFolders, ImageFile
from tta_bench.data.complaints import cut
from tta_bench.data.decode import UNDECODABLE, why

KIND = "found-whole"
JPEG = (b"\xff\xd8\xff", b"\xff\xd9")
PNG = (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82")


def damages(tree: ClassFolders, files: Sequence[ImageFile]) -> list[str]:
    """A sentence for every file that cannot be read to its end."""
    files = sorted(files)
    bill = _clean_bill(tree, files)
    if cache.get(KIND, bill) is not None:
        return []
    with ThreadPoolExecutor(LISTING_THREADS) as pool:
        found = [text for text in pool.map(lambda file: _damage(tree.path(file)), files) if text]
    if not found:
        cache.put(KIND, bill, b"")
    return cut(found, tree.root)


def _damage(path: Path) -> str | None:
    try:
        if _looks_whole(path):
            return None
        with Image.open(path) as image:
            image.load()
    except UNDECODABLE as error:
        return f"{path}: is damaged or cut short: {why(error)}. Copy it again."
    return None


def _looks_whole(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(handle).st_size
        head, tail = os.pread(handle, 8, 0), os.pread(handle, 8, max(0, size - 8))
    finally:
        os.close(handle)
    return any(head.startswith(first) and tail.endswith(last) for first, last in (JPEG, PNG))


def _clean_bill(tree: ClassFolders, files: Sequence[ImageFile]) -> str:
    """The name of the entry that says that these files, as they are now, have been found whole."""
    facts = hashlib.sha256(f"{tree.root.resolve()}\n".encode())
    for file in files:
        facts.update(f"{file.key} {tuple(file.stamp)}\n".encode())
    return facts.hexdigest()[:32]
