"""A user's own images: ROOT/class/* (one clean domain) or ROOT/domain/class/* (several domains).

Labels are the same in every domain, so each class has as many images in every domain as in the domain with
the fewest. Class folders that are all named by ImageNet's wnids are ImageNet's classes. Corruptions are made
from the images of the clean domain, cropped for the model.
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
from tta_bench.data import location
from tta_bench.data.corrupted.base import CorruptedData
from tta_bench.data.corrupted.file_cache import CorruptedFiles
from tta_bench.data.domains import CLEAN
from tta_bench.data.imagenet import wnids
from tta_bench.data.images import integrity, jpeg
from tta_bench.data.images.class_folders import (
    ClassFolders,
    ImageFile,
    class_order,
    fair_order,
    images_in,
    read_class_list,
    scan,
    subfolders,
)
from tta_bench.data.images.files import ImageFiles, read_tensor
from tta_bench.data.images.pixels import to_tensor
from tta_bench.data.problems import BadData, some

Slots = dict[str, list[ImageFile]]  # the images of each domain, with the same labels in the same order


@dataclass
class Folder(CorruptedData, ImageFiles):
    """Class folders in one or several domains, and corruptions of the clean domain."""

    # 1: images were identified by name and size; 2: class folders 0, 1, …, 10 were sorted as text
    version: ClassVar[str] = "3"
    summary: ClassVar[str] = "your own images: ROOT/class/* or ROOT/domain/class/*, clean or corrupted"
    paths: ClassVar[tuple[str, ...]] = ("root", "source_root", "class_list", "frost_images")

    source_root: str = ""  # class folders of clean images; else a part of the domain `clean` is held out
    restrict: bool = False  # limit the model to those of ImageNet's classes that occur
    input_size: Count = 224  # pixels per side after cropping
    class_list: str = ""  # a file with one class folder per line, in the order of the logits
    saved_as_jpeg: bool = False  # save corrupted images as JPEG, as in ImageNet-C

    # Folders and classes -------------------------------------------------------------------------

    @cached_property
    def _places(self) -> dict[str, Path]:
        """The folder of every domain; images, which may be many, are not listed."""
        place = location.locate(self.root, "folder")
        if place is None or not place.is_dir():
            raise BadData(f"folder {place or ''}: there is no such folder. {location.remedy('folder')}")
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
        """The classes that have a folder, in the order of the labels."""
        names = {name for place in self._places.values() for name in subfolders(place)}
        if not self.class_list:
            return class_order(names)
        if strange := sorted(names - set(self._listed)):
            raise BadData(
                f"class list {self.class_list}: does not name {some(strange)}. Add what is missing."
            )
        return tuple(name for name in self._listed if name in names)

    @cached_property
    def _listed(self) -> tuple[str, ...]:
        return read_class_list(Path(self.class_list).expanduser())

    @property
    def num_classes(self) -> int:
        try:
            return len(self._numbered)
        except BadData:  # reported by `problems`
            return 0

    @property
    def _numbered(self) -> tuple[str, ...]:
        """The classes in the order of the model's logits."""
        if self.class_list:
            return self._listed
        known = wnids.imagenet()
        return known if set(self.class_names) <= set(known) else self.class_names

    def classes(self) -> np.ndarray | None:
        if not self.restrict:
            return None
        return wnids.labels_of(self.class_names, self._numbered)

    def own_domains(self) -> tuple[str, ...]:
        try:
            return tuple(name for name in self._places if name != CLEAN)
        except BadData:
            return ()

    # Test and source images -----------------------------------------------------------------------

    @cached_property
    def _source_files(self) -> tuple[ClassFolders, list[ImageFile]]:
        if self.source_root:
            tree = scan(Path(self.source_root).expanduser())
            return tree, fair_order(tree.files)[: self.source_count]
        if CLEAN not in self.trees:
            raise BadData(
                f"{self.root}: no clean images for the source. Set data.source_root, or add a "
                f"domain called {CLEAN}."
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
        folders = [file.folder for file in next(iter(self._slots.values()))]
        return wnids.labels_of(folders, self.class_names if self.restrict else self._numbered)

    def source_labels(self) -> np.ndarray:
        names = self.class_names if self.restrict else self._numbered
        places = {name: i for i, name in enumerate(names)}
        return np.array([places.get(file.folder, -1) for file in self._source_files[1]], np.int64)

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        if self._is_made(domain):
            return to_tensor(self.corrupted(domain).read([self._slots[CLEAN][i] for i in index]))
        tree, files = self.trees[domain.corruption], self._slots[domain.corruption]
        return read_tensor(tree, [files[i] for i in index], self.view)

    def prepare(self, domain: Domain, count: int) -> None:
        """Corrupt the first `count` test images and save them in the cache."""
        if self._is_made(domain):
            self.corrupted(domain).prepare(self._slots[CLEAN][:count])

    def _is_made(self, domain: Domain) -> bool:
        """Whether a domain is not a folder but a corruption of the clean domain."""
        return domain.corruption not in self.trees and domain.severity > 0

    def new_corrupted(self, domain: Domain) -> CorruptedFiles:
        function, reads = self.corruption(domain.corruption), super().domain_fingerprint(domain)
        how = (self.corruption_seed, function, reads, self.view, self.saved_as_jpeg, "folder")
        return CorruptedFiles(self.trees[CLEAN], domain, *how)

    def fingerprint(self) -> str:
        """SHA-256 over the labels and their order, which all domains share, and over the source images."""
        try:
            parts = [file.folder for file in next(iter(self._slots.values()))]
            parts += self._listed if self.class_list else ()
            tree, files = self._source_files
            parts.append(tree.digest(files))
        except BadData:
            return ""
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def domain_fingerprint(self, domain: Domain) -> str:
        """SHA-256 over the images of the domain, or of the clean images it is made from."""
        try:
            made = self._is_made(domain)
            name = CLEAN if made else domain.corruption
            digest = self.trees[name].digest(self._slots[name])
            return digest + super().domain_fingerprint(domain) if made else digest
        except (BadData, KeyError):  # reported by `problems`
            return ""

    def note(self) -> str:
        shown = len(next(iter(self._slots.values())))
        most = max(len(tree.files) for tree in self.trees.values())
        fewer = "" if shown == most else f"{shown} images per domain, of up to {most} on disk"
        return "; ".join(filter(None, [fewer, jpeg.NOTE if self.saved_as_jpeg else ""]))

    def domain_note(self, domain: Domain) -> str:
        return super().domain_note(domain) if self._is_made(domain) else ""

    # Problems -------------------------------------------------------------------------------------

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """Missing domains, classes and images, and damaged files."""
        try:
            return self.view_problems() or self._complaints(domains)
        except BadData as error:
            return [str(error)]

    def _complaints(self, domains: Sequence[Domain]) -> list[str]:
        there = ", ".join(self.trees)
        made = [domain for domain in domains if self._is_made(domain)]
        known = {domain.corruption for domain in made} if CLEAN in self.trees else set()
        if missing := [d.corruption for d in domains if d.corruption not in {*self.trees, *known}]:
            remedy = "Use these names in stream.corruptions, or add a domain clean, which can be corrupted."
            return [f"{self.root}: no domain {some(missing)}. There: {there}. {remedy}"]
        if found := self.corruption_problems(made):
            return found
        found = [text for tree in self.trees.values() for text in self._class_complaints(tree)]
        if found:
            return found
        if not self.test_labels().size:
            return [f"{self.root}: no images are left to test. Add some, or set data.source_count lower."]
        source_tree, source = self._source_files
        if not source:
            return [f"{source_tree.root}: has no images for the source. Add some."]
        for name in dict.fromkeys(CLEAN if d in made else d.corruption for d in domains):
            found += integrity.damages(self.trees[name], self._slots[name])
        return found + integrity.damages(source_tree, source)

    def _class_complaints(self, tree: ClassFolders) -> list[str]:
        counts = tree.counts()
        empty = [name for name in self.class_names if not counts[name]]
        if loose := images_in(tree.root, ""):
            return [f"{tree.root / loose[0].name}: an image outside the class folders. Move it into one."]
        if not self.class_names:
            return [
                f"{tree.root}: no class folders. Put the images of each class into a folder of their own."
            ]
        return [f"{tree.root}: no images of class {some(empty)}. Every domain needs some."] if empty else []
