"""The built-in references: published figures that belong to cells of our plugins."""

from __future__ import annotations

from tta_bench.tables.references.files import FOLDER, read
from tta_bench.tables.references.reference import Reference


def zoa_mm25() -> Reference:
    """ZOA on quantised networks: every number of the paper."""
    return read(FOLDER / "zoa_mm25.csv")


def foa() -> Reference:
    """FOA and the methods it is compared with, on its ViT-B, reset at each corruption."""
    return read(FOLDER / "foa.csv")


def neo() -> Reference:
    """NEO and seven other methods on 512 images of each corruption."""
    return read(FOLDER / "neo.csv")


def fozo() -> Reference:
    """FOZO, ZOA and FOA with two passes, on the 5 000 images of RobustBench."""
    return read(FOLDER / "fozo.csv")


def pea() -> Reference:
    """PEA on ViT-B, with its ablation."""
    return read(FOLDER / "pea.csv")


def mariodoebler() -> Reference:
    """A benchmark of ten methods on continual, mixed and correlated streams."""
    return read(FOLDER / "mariodoebler.csv")


def note() -> Reference:
    """NOTE and five other methods on correlated and i.i.d. CIFAR-10-C."""
    return read(FOLDER / "note.csv")


def petta() -> Reference:
    """PeTTA and RoTTA on streams that come to each corruption 20 times."""
    return read(FOLDER / "petta.csv")
