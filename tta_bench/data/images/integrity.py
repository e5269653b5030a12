"""Whether image files are intact, judged by their first and last bytes; the outcome is cached.

A file whose ends look wrong is decoded before it is reported as damaged: a few published images have extra
bytes at the end, or another format than their names say.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from tta_bench.cache import entries
from tta_bench.data.images.class_folders import LISTING_THREADS, ClassFolders, ImageFile
from tta_bench.data.images.decode import UNDECODABLE, why
from tta_bench.data.problems import cut

KIND = "found-whole"
JPEG = (b"\xff\xd8\xff", b"\xff\xd9")
PNG = (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82")


def damages(tree: ClassFolders, files: Sequence[ImageFile]) -> list[str]:
    """A sentence for every damaged file."""
    files = sorted(files)
    bill = _clean_bill(tree, files)
    if entries.get(KIND, bill) is not None:
        return []
    with ThreadPoolExecutor(LISTING_THREADS) as pool:
        found = [text for text in pool.map(lambda file: _damage(tree.path(file)), files) if text]
    if not found:
        entries.put(KIND, bill, b"")
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
    with open(path, "rb", buffering=0) as file:
        head = file.read(8)
        file.seek(max(0, os.fstat(file.fileno()).st_size - 8))
        tail = file.read(8)
    return any(head.startswith(first) and tail.endswith(last) for first, last in (JPEG, PNG))


def _clean_bill(tree: ClassFolders, files: Sequence[ImageFile]) -> str:
    """The name of the cache entry that marks these files, in their present state, as intact."""
    facts = hashlib.sha256(f"{tree.root.resolve()}\n".encode())
    for file in files:
        facts.update(f"{file.key} {tuple(file.stamp)}\n".encode())
    return facts.hexdigest()[:32]
