"""A user's own images: ROOT/class/*, one clean domain, or ROOT/domain/class/*, any number of them.

Labels are the same in every domain, so of each class every domain shows as many images as the poorest one
has. Class folders that are all named by ImageNet's wnids are ImageNet's classes.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from torch import Tensor

from tta_bench.api import Count, Domain
from tta_bench.data import decode, integrity, roots, wnids
from tta_bench.data.class_folders import (
    ClassFolders,
    ImageFile,
    fair_order,
    images_in,
    scan,
    subfolders,
)
from tta_bench.data.complaints import BadData, some
from tta_bench.data.domains import CLEAN
from tta_bench.data.image_files import ImageFiles
from tta_bench.data.pixels import to_tensor

Slots = dict[str, list[ImageFile]]  # the images of each domain, label by label alike


@dataclass
class Folder(ImageFiles):
    """Class folders, in one domain or several."""

    version: ClassVar[str] = "2"  # 1: images were known by their names and sizes
    summary: ClassVar[str] = "your own images: ROOT/class/* or ROOT/domain/class/*"
    paths: ClassVar[tuple[str, ...]] = ("root", "source_root")

    source_root: str = ""  # class folders of clean images; else a part of the domain `clean` is withheld
    restrict: bool = False  # of ImageNet's classes, the model knows only those that occur
    input_size: Count = 224

    # What is there ------------------------------------------------------------------------------

    @cached_property
    def _places(self) -> dict[str, Path]:
        """The folder of every domain, found without listing images, of which there may be many."""
        place = roots.locate(self.root, "folder")
        if place is None or not place.is_dir():
            raise BadData(f"folder {place or ''}: there is no such folder. {roots.remedy('folder')}")
        names = subfolders(place)
        if any(subfolders(place / name) for name in names):
            return {name: place / name for name in names}
        return {CLEAN: place}

    @cached_property
    def trees(self) -> dict[str, ClassFolders]:
        """The class folders of every domain, with their images."""
        return {name: scan(place) for name, place in self._places.items()}

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """All classes, sorted; the order of the labels."""
        return tuple(sorted({name for place in self._places.values() for name in subfolders(place)}))

    @property
    def num_classes(self) -> int:
        try:
            return len(self._numbered)
        except BadData:  # `problems` tells
            return 0

    @property
    def _numbered(self) -> tuple[str, ...]:
        """The classes in the order of the model's logits."""
        known = wnids.imagenet()
        return known if set(self.class_names) <= set(known) else self.class_names

    def classes(self) -> np.ndarray | None:
        if not self.restrict:
            return None
        places = wnids.indices(self._numbered)
        return np.array([places[name] for name in self.class_names], np.int64)

    def own_domains(self) -> tuple[str, ...]:
        try:
            return tuple(name for name in self._places if name != CLEAN)
        except BadData:
            return ()

    # What is tested, and what the source is ------------------------------------------------------

    @cached_property
    def _source_files(self) -> tuple[ClassFolders, list[ImageFile]]:
        if self.source_root:
            tree = scan(Path(self.source_root).expanduser())
            return tree, fair_order(tree.files)[: self.source_count]
        if CLEAN not in self.trees:
            raise BadData(
                f"{self.root}: no clean images. Give data.source_root, or a domain called {CLEAN}, which "
                "the source is taken from."
            )
        ordered = fair_order(self.trees[CLEAN].files)
        withheld = min(self.source_count, len(ordered) // 2)
        return self.trees[CLEAN], ordered[len(ordered) - withheld :]

    @cached_property
    def _slots(self) -> Slots:
        withheld = set() if self.source_root else {file.key for file in self._source_files[1]}
        queues: dict[str, dict[str, list[ImageFile]]] = {}
        for domain, tree in self.trees.items():
            queues[domain] = defaultdict(list)
            for file in fair_order(tree.files):
                if file.key not in withheld:
                    queues[domain][file.folder].append(file)
        counts = {name: min(len(queue[name]) for queue in queues.values()) for name in self.class_names}
        places = sorted(
            ((name, turn) for name, count in counts.items() for turn in range(count)),
            key=lambda place: hashlib.sha256(f"{place[0]}/{place[1]}".encode()).digest(),
        )
        return {domain: [queue[name][turn] for name, turn in places] for domain, queue in queues.items()}

    def source_paths(self) -> Sequence[Path]:
        tree, files = self._source_files
        return [tree.path(file) for file in files]

    def test_labels(self) -> np.ndarray:
        places = wnids.indices(self.class_names if self.restrict else self._numbered)
        first = next(iter(self._slots.values()))
        return np.array([places[file.folder] for file in first], np.int64)

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        tree, files = self.trees[domain.corruption], self._slots[domain.corruption]
        return to_tensor(decode.read_all([tree.path(files[i]) for i in index], self.view))

    def fingerprint(self) -> str:
        """SHA-256 over the labels, which all domains have in common, and over the source."""
        try:
            parts = [file.folder for file in next(iter(self._slots.values()))]
            tree, files = self._source_files
            parts.append(tree.digest(files))
        except BadData:
            return ""
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def domain_fingerprint(self, domain: Domain) -> str:
        """SHA-256 over the images that the domain shows."""
        try:
            tree, files = self.trees[domain.corruption], self._slots[domain.corruption]
            return tree.digest(files)
        except (BadData, KeyError):  # `problems` tells which
            return ""

    def note(self) -> str:
        shown = len(next(iter(self._slots.values())))
        most = max(len(tree.files) for tree in self.trees.values())
        return "" if shown == most else f"{shown} images a domain, of up to {most} that there are"

    # What may be wrong ----------------------------------------------------------------------------

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """Domains, classes and images that are not there, and files that are not whole."""
        try:
            return self.view_problems() or self._complaints(domains)
        except BadData as error:
            return [str(error)]

    def _complaints(self, domains: Sequence[Domain]) -> list[str]:
        there = ", ".join(self.trees)
        if missing := [domain.corruption for domain in domains if domain.corruption not in self.trees]:
            remedy = "Name in stream.corruptions what is there."
            return [f"{self.root}: no domain {some(missing)}. There: {there}. {remedy}"]
        found = [text for tree in self.trees.values() for text in self._class_complaints(tree)]
        if found:
            return found
        if not self.test_labels().size:
            return [f"{self.root}: no images are left to test. Add some, or set data.source_count lower."]
        source_tree, source = self._source_files
        if not source:
            return [f"{source_tree.root}: has no images to take the source from. Add some."]
        for domain in dict.fromkeys(domains):
            found += integrity.damages(self.trees[domain.corruption], self._slots[domain.corruption])
        return found + integrity.damages(source_tree, source)

    def _class_complaints(self, tree: ClassFolders) -> list[str]:
        counts = tree.counts()
        empty = [name for name in self.class_names if not counts[name]]
        if loose := images_in(tree.root, ""):
            return [f"{tree.root / loose[0].name}: an image outside of class folders. Move it into one."]
        if not self.class_names:
            return [f"{tree.root}: no class folders. Put the images of each class into one of their own."]
        return [f"{tree.root}: no images of class {some(empty)}. Every domain needs some."] if empty else []
