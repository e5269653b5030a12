"""Warnings about grids that run but give misleading numbers; `plan`, `validate` and `run` print them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from tta_bench.api import Data, Method, Target
from tta_bench.api.families import FAMILIES
from tta_bench.errors import UserError
from tta_bench.footprint.skeleton import skeleton
from tta_bench.grid import Cell
from tta_bench.plugins import registry

MIXED = 0.5  # warn below this share of the classes that random batches would contain
SOURCE_BATCH = 64


def cautions(cells: Sequence[Cell], known: Mapping[str, Data] | None = None) -> list[str]:
    """All warnings about these cells, each once; `known` has data that is already loaded, by digest."""
    found = [*unknown_families(cells)]
    for cell in {cell.data.digest: cell for cell in cells}.values():
        same = [each for each in cells if each.data.digest == cell.data.digest]
        # Missing images cannot be checked, and a warning is no reason to stop.
        with suppress(UserError), registry.asking("data", cell.data.use):
            if cell.data.fingerprint:
                found += class_orders((known or {}).get(cell.data.digest) or cell.data.make(), same)
    return list(dict.fromkeys(found))


# -- families ----------------------------------------------------------------------------------------


def unknown_families(cells: Sequence[Cell]) -> list[str]:
    """Warnings about models whose family has no presets, with the methods that have presets for others."""
    found = []
    for cell in {cell.model.digest: cell for cell in cells}.values():
        family = cell.model.make().family
        if family in FAMILIES:
            continue
        methods = sorted({c.method.use for c in cells if c.model.digest == cell.model.digest and _tuned(c)})
        if methods:
            found.append(
                f'model {cell.labels.model}: there are no presets for its family "{family}", so defaults '
                f"are used for {', '.join(methods)}. If it is one of {', '.join(FAMILIES)}, say so in its "
                "plugin; else set the parameters in the file."
            )
    return found


def _tuned(cell: Cell) -> bool:
    """Whether a method has presets for some family."""
    cls: type[Method] = registry.load("methods", cell.method.use)
    return any(cls.presets(Target("", family, cell.bits)) for family in FAMILIES)


# -- classes -----------------------------------------------------------------------------------------


def class_orders(data: Data, cells: Sequence[Cell]) -> list[str]:
    """Warnings about streams, batches and source images that contain too few of the classes."""
    labels = data.test_labels()
    found = []
    for cell in {_stream(cell): cell for cell in cells}.values():
        found += _limit(labels, cell) + _batches(labels, cell, cells)
    source = data.source_labels()
    return found if source is None else [*found, *_source(labels, source, cells)]


def _stream(cell: Cell) -> tuple[object, ...]:
    """What decides which classes the batches of a cell hold."""
    scenario = "" if cell.scenario is None else cell.scenario.digest
    return (scenario, cell.batch_size, cell.order, cell.limit, cell.seed, cell.straddle)


def expected_classes(labels: np.ndarray, images: int) -> float:
    """How many classes so many randomly drawn images contain on average."""
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    return float((1 - (1 - shares) ** images).sum())


def _seen(batches: Iterable[np.ndarray]) -> float:
    return float(np.mean([len(np.unique(batch)) for batch in batches]))


def _limit(labels: np.ndarray, cell: Cell) -> list[str]:
    count = cell.count(len(labels))
    seen, expected = len(np.unique(labels[:count])), expected_classes(labels, count)
    if seen >= MIXED * expected:
        return []
    return [
        f"data {cell.data.use}: its first {count} images show {seen} classes, where {expected:.0f} are to be "
        "expected. Shuffle the images, or raise stream.limit."
    ]


def _batches(labels: np.ndarray, cell: Cell, cells: Sequence[Cell]) -> list[str]:
    if cell.schedule.scenario.uses_labels:  # it shows few classes at a time on purpose
        return []
    stream = cell.stream(labels)
    whole = [pairs[:, 1] for pairs in stream.batches(1, 0) if len(pairs) == cell.batch_size]
    if not whole:
        return []
    expected = expected_classes(labels[: stream.count], cell.batch_size)
    seen = _seen(labels[part] for part in whole)
    if seen >= MIXED * expected:
        return []
    rows = sorted({f"{c.labels.method} on {c.labels.model}" for c in cells if _uses_batch_statistics(c)})
    if not rows:
        return []
    return [
        f"data {cell.data.use}: batches of {cell.batch_size} hold {seen:.1f} classes, shuffled ones "
        f"{expected:.1f}. Methods that normalise by the batch then lose accuracy (4 to 7 points on a "
        f"ResNet-50): {', '.join(rows)}. Set stream.order to shuffled."
    ]


def _uses_batch_statistics(cell: Cell) -> bool:
    """Whether BatchNorm layers normalise by batch statistics: methods that adapt such networks do."""
    method, model = cell.method.make(), skeleton(cell.model.make())
    if not model.batch_norms():
        return False
    return method.batch_statistics(model) if method.consumes == "features" else method.memory != "none"


def _source(labels: np.ndarray, source: np.ndarray, cells: Sequence[Cell]) -> list[str]:
    """A warning if source images contain fewer classes than random images of the stream would."""
    cell = next((c for c in cells if c.bits != "FP32" or c.method.make().memory != "none"), None)
    if cell is None or not len(source):
        return []
    size = min(SOURCE_BATCH, len(source))
    known = np.where(np.isin(source, labels), source, -1)
    parts = [part[part >= 0] for part in np.split(known, range(size, len(known), size))]
    seen, expected = _seen(parts[: max(1, len(source) // size)]), expected_classes(labels, size)
    if seen >= MIXED * expected:
        return []
    return [
        f"data {cell.data.use}: {size} source images in a row show {seen:.1f} of the stream's classes, and "
        f"{expected:.1f} are to be expected. Calibrations and source statistics are then those of other "
        "images. Give source images with the stream's class mix, shuffled."
    ]
