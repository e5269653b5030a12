"""Images in one folder for each class: listed in parallel, ordered the same on every machine."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tta_bench.cache.content_hash import FolderHashes, Stamp
from tta_bench.data.problems import BadData, some

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm")
LISTING_THREADS = 16  # threads wait for the disk or the network


class ImageFile(NamedTuple):
    """An image by class folder and file name, and its file status."""

    folder: str
    name: str
    stamp: Stamp

    @property
    def key(self) -> str:
        """Class folder and file name, the same on every machine."""
        return f"{self.folder}/{self.name}"


@dataclass(frozen=True)
class ClassFolders:
    """All images under a root; `flat` if they are in the root itself and a table gives their classes."""

    root: Path
    folders: tuple[str, ...]
    files: tuple[ImageFile, ...]
    flat: bool = False

    def path(self, file: ImageFile) -> Path:
        """The path of an image."""
        return self.root / self._inside(file)

    def contents(self, files: Collection[ImageFile]) -> dict[str, str]:
        """The SHA-256 of the content of each of these files, by the image's key."""
        places = {file.key: self._inside(file) for file in files}
        stamps = {self._inside(file): file.stamp for file in files}
        try:
            found = self._hashes.of(stamps)
        except OSError as error:
            place = error.filename or self.root
            raise BadData(f"{place}: cannot be read: {error.strerror}. Check its permissions.") from error
        return {key: found[place] for key, place in places.items()}

    def digest(self, files: Collection[ImageFile]) -> str:
        """SHA-256 over classes, names and contents of these images; independent of the root."""
        lines = sorted(f"{key} {content}\n" for key, content in self.contents(files).items())
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def counts(self) -> Counter[str]:
        """The number of images of each class."""
        return Counter(file.folder for file in self.files)

    def _inside(self, file: ImageFile) -> str:
        return file.name if self.flat else file.key

    @cached_property
    def _hashes(self) -> FolderHashes:
        return FolderHashes(self.root)


def scan(root: Path) -> ClassFolders:
    """The images in the folders of a root."""
    folders = subfolders(root)
    with ThreadPoolExecutor(LISTING_THREADS) as pool:
        found = pool.map(lambda folder: images_in(root / folder, folder), folders)
        return ClassFolders(root, folders, tuple(file for files in found for file in files))


def subfolders(root: Path) -> tuple[str, ...]:
    """Names of the folders in a folder, sorted, without hidden ones."""
    try:
        with os.scandir(root) as entries:
            return tuple(sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(".")))
    except OSError as error:
        raise BadData(f"{root}: cannot be listed: {error.strerror}. Check the path.") from error


def class_order(names: Iterable[str]) -> tuple[str, ...]:
    """Class folders in the order of their labels: numbers by value, other names alphabetically."""
    found = sorted(set(names))
    return tuple(sorted(found, key=int) if all(name.isdecimal() for name in found) else found)


def read_class_list(path: Path) -> tuple[str, ...]:
    """The class folders listed in a file, one per line, in the order of the model's logits."""
    try:
        names = tuple(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise BadData(f"class list {path}: cannot be read: {reason}. Give a text file.") from error
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise BadData(f"class list {path}: names {some(twice)} twice. Write one class per line.")
    return names


def images_in(path: Path, folder: str) -> list[ImageFile]:
    """The image files in one folder, sorted by name."""
    try:
        with os.scandir(path) as entries:
            found = [e for e in entries if e.name.lower().endswith(SUFFIXES) and not e.name.startswith(".")]
            facts = [(entry.name, entry.stat()) for entry in found if entry.is_file()]
    except OSError as error:
        raise BadData(f"{path}: cannot be listed: {error.strerror}. Check its permissions.") from error
    return sorted(ImageFile(folder, name, Stamp.of(status)) for name, status in facts)


def fair_order(files: Iterable[ImageFile]) -> list[ImageFile]:
    """The images ordered by the hash of class and name, so that every prefix is a random sample."""
    return sorted(files, key=lambda file: hashlib.sha256(file.key.encode()).digest())


def class_problems(
    tree: ClassFolders, wanted: Sequence[str], partial: bool, each: int = 0, total: int = 0
) -> list[str]:
    """Problems with the classes of a tree and with their numbers of images."""
    remedy = "Unpack it again, or set `partial: true` to use a part of it."
    counts = tree.counts()
    known, present = set(wanted), set(tree.folders)
    strange = [name for name in tree.folders if name not in known]
    found = []
    if strange:
        found.append(f"{tree.root}: {some(strange)}: not a class of this data. Move it elsewhere.")
    if empty := [name for name in tree.folders if name in known and not counts[name]]:
        found.append(f"{tree.root}: no images in class folder {some(empty)}. {remedy}")
    if not present & known:
        found.append(
            f"{tree.root}: no class folders, such as {wanted[0]}. Give the folder that contains them."
        )
    elif not partial and (missing := [name for name in wanted if name not in present]):
        share = f"{len(missing)} of {len(wanted)}"
        found.append(f"{tree.root}: {share} class folders are missing: {some(missing)}. {remedy}")
    if found or partial:
        return found
    if each and (short := [f"{name} has {counts[name]}" for name in wanted if counts[name] != each]):
        found.append(f"{tree.root}: not {each} images in each class folder: {some(short)}. {remedy}")
    if total and len(tree.files) != total:
        found.append(f"{tree.root}: {len(tree.files)} images instead of {total}. {remedy}")
    return found
