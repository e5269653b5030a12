"""The published ImageNet-C: ROOT/corruption/severity/wnid/*.JPEG, images of 224 pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from tta_bench.api import Domain, View
from tta_bench.corruptions.sets import GROUPS
from tta_bench.data.domains import CLEAN, composed_problems
from tta_bench.data.imagenet.clean import chosen
from tta_bench.data.imagenet.family import BesideImageNet
from tta_bench.data.imagenet.subsets import ALL, Subset, listed
from tta_bench.data.images import decode, integrity
from tta_bench.data.images.class_folders import (
    ClassFolders,
    ImageFile,
    fair_order,
    scan,
    subfolders,
)
from tta_bench.data.images.files import read_tensor
from tta_bench.data.images.pixels import to_tensor
from tta_bench.data.problems import BadData, some


@dataclass
class ImageNetC(BesideImageNet):
    """The published images, the same in every domain, read without resizing."""

    summary: ClassVar[str] = "the published ImageNet-C, from your disk"
    folder_name: ClassVar[str] = "imagenet-c"
    alternative: ClassVar[str] = "Or use data imagenet, which corrupts the validation images itself."
    input_size: ClassVar[int] = 224
    added: ClassVar[Mapping[str, Any]] = MappingProxyType({"subset": ALL})

    subset: Subset = ALL  # a published list of validation images; `order: sequential` keeps its order

    @property
    def listed(self) -> tuple[str, ...]:
        return listed(self.subset)

    def tested(self) -> Sequence[ImageFile]:
        return self._tested

    @cached_property
    def _tested(self) -> list[ImageFile]:
        """The images of val that are not held out; without val, those of the first domain on disk."""
        if self.clean.has_val:
            return self.clean.test
        there = scan(self._first_folder()).files
        return chosen(there, self.listed) if self.listed else fair_order(there)

    def content(self) -> str:
        """SHA-256 over names only; contents are in the fingerprints of the domains that are used."""
        names = sorted(file.key for file in self.tested())
        return hashlib.sha256("\n".join(names).encode()).hexdigest()

    def domain_fingerprint(self, domain: Domain) -> str:
        """SHA-256 over the images of the domain."""
        try:
            tree = self.clean.val if domain.corruption == CLEAN else scan(self._folder(domain))
            return tree.digest(self._read_of(tree))
        except BadData:
            return ""

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        files = [self.tested()[i] for i in index]
        if domain.corruption == CLEAN:
            return read_tensor(self.clean.val, files, self.view)
        folder = self._folder(domain)
        paths = [folder / file.folder / file.name for file in files]
        return to_tensor(decode.read_all(paths, View(self.input_size, 0)))

    def complaints(self, domains: Sequence[Domain]) -> list[str]:
        self.place  # noqa: B018 - said first, because without it nothing else matters
        if composed := composed_problems(domains, "imagenet"):
            return composed
        tests_clean = self.clean.has_val and any(domain.corruption == CLEAN for domain in domains)
        found = self.clean.problems(tested=tests_clean)
        return found or [text for domain in domains for text in self._domain_complaints(domain)]

    def _domain_complaints(self, domain: Domain) -> list[str]:
        if domain.corruption == CLEAN:
            return [] if self.clean.has_val else [f"clean: {self.clean.root} has no val. Unpack it there."]
        corruption, folder = self.place / domain.corruption, self._folder(domain)
        if not corruption.is_dir():
            there = some(subfolders(self.place)) or "nothing"
            return [f"{corruption}: is missing. In {self.place}: {there}. Unpack it, or leave it out."]
        if not folder.is_dir():
            there = some(subfolders(corruption)) or "none"
            return [f"{folder}: severity {domain.severity} is missing. There: {there}. Set stream.severity."]
        tree = scan(folder)
        found = []
        if not self.clean.has_val:
            found = self.clean.complaints(tree)
        return found or self._missing(tree) or integrity.damages(tree, self._read_of(tree))

    def _missing(self, tree: ClassFolders) -> list[str]:
        """Class folders and images that other domains have and this one lacks."""
        present, remedy = {file.key for file in tree.files}, "Unpack it again."
        wanted = sorted({file.folder for file in self.tested()})
        if absent := [folder for folder in wanted if folder not in tree.folders]:
            return [f"{tree.root}: class folder {some(absent)} is missing. {remedy}"]
        if lost := [file.key for file in self.tested() if file.key not in present]:
            return [f"{tree.root}: {len(lost)} images are missing: {some(sorted(lost))}. {remedy}"]
        return []

    def _read_of(self, tree: ClassFolders) -> list[ImageFile]:
        wanted = {file.key for file in self.tested()}
        return [file for file in tree.files if file.key in wanted]

    def _folder(self, domain: Domain) -> Path:
        return self.place / domain.corruption / str(domain.severity)

    def _first_folder(self) -> Path:
        domains = (Domain(name, severity) for name in GROUPS for severity in (5, 4, 3, 2, 1))
        found = next((path for d in domains if (path := self._folder(d)).is_dir()), None)
        if found is None:
            raise BadData(f"{self.place}: no folder such as gaussian_noise/5. Unpack ImageNet-C there.")
        return found
