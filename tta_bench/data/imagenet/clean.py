"""ImageNet's own images: the validation set, in class folders or flat, and the clean source images.

ROOT/val/n01440764/*.JPEG                  the 50 000 validation images, or
ROOT/val/*.JPEG + LOC_val_solution.csv     Kaggle's form; or one wnid per line, in the order of the names
ROOT/train/n01440764/*.JPEG                not needed; if there, source images come from it
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from tta_bench.data.imagenet import wnids
from tta_bench.data.images import integrity
from tta_bench.data.images.class_folders import (
    ClassFolders,
    ImageFile,
    class_problems,
    fair_order,
    images_in,
    scan,
    subfolders,
)
from tta_bench.data.problems import BadData, some

IMAGES_A_CLASS = 50
KAGGLE_TABLE = "LOC_val_solution.csv"
SYNSET_LISTS = ("imagenet_2012_validation_synset_labels.txt", "synset_labels.txt")


class CleanImageNet:
    """Which clean images are test images and which are source images; with `shared`, some are both.

    `auto` takes the source from train if it exists, and otherwise holds out a part of val.
    """

    def __init__(
        self, root: Path, source: str, count: int, partial: bool, listed: Sequence[str] = ()
    ) -> None:
        """`listed` are the test images of a subset, in order; without it, all of val are tested."""
        self.root, self.count, self.partial, self.listed = root, count, partial, listed
        self.train = root / "train"
        if source == "auto":
            source = "train" if self.train.is_dir() else "held-out"
        self.source = source

    @cached_property
    def val(self) -> ClassFolders:
        """The validation images."""
        return validation(self.root)

    @property
    def has_val(self) -> bool:
        """Whether there is a folder of validation images."""
        return (self.root / "val").is_dir() or (self.root.is_dir() and not self.train.is_dir())

    @cached_property
    def test(self) -> list[ImageFile]:
        """The validation images that are not held out, in random order; or those that are listed."""
        if self.listed:
            return chosen(self.val.files, self.listed)
        ordered = fair_order(self.val.files)
        return ordered[: len(ordered) - self._withheld] if self.source == "held-out" else ordered

    @cached_property
    def source_files(self) -> tuple[ClassFolders, list[ImageFile]]:
        """The source images, for statistics and calibration, and the tree they are in."""
        if self.source == "train":
            return _some_of_each(self.train, self.count)
        tested = set(self.listed) if self.source == "held-out" else set()
        ordered = [file for file in fair_order(self.val.files) if file.key not in tested]
        return self.val, ordered[len(ordered) - min(self._withheld, len(ordered)) :]

    @property
    def _withheld(self) -> int:
        return min(self.count, len(self.val.files) // 2)

    def digest(self) -> str:
        """SHA-256 over the names and contents of the source images."""
        tree, files = self.source_files
        return hashlib.sha256(f"{self.source} {tree.digest(files)}".encode()).hexdigest()

    def problems(self, tested: bool) -> list[str]:
        """Problems of the source images, and of the validation images if they are tested."""
        if self.source == "train" and not self.train.is_dir():
            return [f"{self.train}: is missing. Unpack the training images there, or choose another source."]
        tree, files = self.source_files
        found = self._missing_classes(tree) if self.source == "train" else []
        if tested or self.source != "train":
            found += self.complaints(self.val)
        if found:
            return found
        if not files:
            return [f"{tree.root}: has too few images for the source. Add some."]
        return integrity.damages(tree, files) + (integrity.damages(self.val, self.test) if tested else [])

    def complaints(self, tree: ClassFolders) -> list[str]:
        """Classes and images that a tree lacks."""
        if self.listed:
            return subset_problems(tree, self.listed, self.partial)
        return class_problems(tree, wnids.imagenet(), self.partial, each=IMAGES_A_CLASS)

    def _missing_classes(self, train: ClassFolders) -> list[str]:
        missing = [name for name in wnids.imagenet() if name not in train.folders]
        if self.partial or not missing:
            return []
        return [f"{train.root}: {len(missing)} class folders are missing: {some(missing)}. Unpack them."]


def validation(root: Path) -> ClassFolders:
    """The validation images under ROOT/val, or under ROOT itself."""
    folder = root / "val" if (root / "val").is_dir() else root
    if not folder.is_dir():
        raise BadData(f"{folder}: is missing. Unpack ImageNet's validation images there.")
    if subfolders(folder):
        return scan(folder)
    files = images_in(folder, "")
    if not files:
        raise BadData(f"{folder}: has neither class folders nor images. Unpack the validation images there.")
    classes = _classes_of(folder, [file.name for file in files])
    labelled = sorted(file._replace(folder=classes[file.name]) for file in files)
    return ClassFolders(folder, tuple(sorted(set(classes.values()))), tuple(labelled), flat=True)


def chosen(files: Iterable[ImageFile], listed: Sequence[str]) -> list[ImageFile]:
    """The images that a list names, in the order of the list; those that are missing are left out."""
    there = {file.key: file for file in files}
    return [there[key] for key in listed if key in there]


def subset_problems(tree: ClassFolders, listed: Sequence[str], partial: bool) -> list[str]:
    """The images of a list that are missing; with `partial`, only if all are."""
    there = {file.key for file in tree.files}
    missing = [key for key in listed if key not in there]
    if not missing or (partial and len(missing) < len(listed)):
        return []
    share = f"{len(missing)} of the {len(listed)} images of data.subset"
    return [f"{tree.root}: {share} are missing: {some(missing)}. Unpack all validation images there."]


def _classes_of(folder: Path, names: list[str]) -> dict[str, str]:
    """The class of every file of a flat folder, from a table in it or beside it."""
    tables = [place / name for place in (folder, folder.parent) for name in (KAGGLE_TABLE, *SYNSET_LISTS)]
    table = next((path for path in tables if path.is_file()), None)
    if table is None:
        wanted = " or ".join((KAGGLE_TABLE, *SYNSET_LISTS))
        raise BadData(f"{folder}: has images without class folders. Put {wanted} beside them.")
    if table.name == KAGGLE_TABLE:
        with open(table, newline="") as file:
            rows = list(csv.reader(file))
        by_stem = {row[0]: row[1].split()[0] for row in rows[1:] if len(row) > 1 and row[1].strip()}
        classes = {name: by_stem[stem] for name in names if (stem := Path(name).stem) in by_stem}
    else:
        listed = table.read_text().split()
        if len(listed) != len(names):
            raise BadData(
                f"{table}: {len(listed)} lines for {len(names)} images. Give one wnid for each image."
            )
        classes = dict(zip(names, listed, strict=True))
    if unlabelled := [name for name in names if name not in classes]:
        raise BadData(f"{table}: no class for {some(unlabelled)}. Use the table of this set.")
    return classes


def _some_of_each(root: Path, count: int) -> tuple[ClassFolders, list[ImageFile]]:
    """This many training images, one class after the other in turn; only the folders needed are listed."""
    known = set(wnids.imagenet())
    folders = [folder for folder in subfolders(root) if folder in known]
    if not folders:
        raise BadData(f"{root}: no class folders, such as {wnids.imagenet()[0]}. Unpack the training images.")
    turns = sorted(folders, key=lambda folder: hashlib.sha256(folder.encode()).digest())[:count]
    each = -(-count // len(turns))
    queues = [fair_order(images_in(root / folder, folder))[:each] for folder in turns]
    files = [queue[turn] for turn in range(each) for queue in queues if turn < len(queue)][:count]
    return ClassFolders(root, tuple(folders), tuple(files)), files
