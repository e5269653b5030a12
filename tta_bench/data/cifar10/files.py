"""The two common formats of CIFAR-10 on disk, read without running code from a file.

The published python batches are pickles. They are never unpickled: the string of pixels and the list of
labels are found by reading the opcodes.
"""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path

import numpy as np

from tta_bench.data.corrupted.in_memory import Split
from tta_bench.data.problems import BadData

PIXELS = 3 * 32 * 32
BATCH = 10_000
FOLDER = "cifar-10-batches-py"
NPZ_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
Pair = tuple[np.ndarray, np.ndarray]  # images, labels


def read_splits(place: Path, train_count: int) -> tuple[Split, Split]:
    """The first training images and all test images under a folder or in an .npz."""
    if not place.exists():
        raise BadData(f"{place}: does not exist. Name the folder {FOLDER}, or an .npz of the whole set.")
    train, test = _npz(place) if place.is_file() else _batches(place)
    return _cut(*train, train_count), _cut(*test, len(test[1]))


def _npz(path: Path) -> tuple[Pair, Pair]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in NPZ_ARRAYS if name not in arrays]
            if missing:
                wanted = ", ".join(NPZ_ARRAYS)
                raise BadData(f"{path}: has no array {', '.join(missing)}. Save it with {wanted}.")
            x_train, y_train, x_test, y_test = (np.asarray(arrays[name]) for name in NPZ_ARRAYS)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise BadData(f"{path}: cannot be read as an .npz ({error}). Copy it again.") from error
    for name, images, labels in (("train", x_train, y_train), ("test", x_test, y_test)):
        fits = images.shape == (labels.size, 32, 32, 3) and images.dtype == np.uint8 and labels.size
        if not fits or labels.min() < 0 or labels.max() > 9:
            shape = f"x_{name} is {images.dtype} {images.shape}, y_{name} {labels.shape}"
            raise BadData(f"{path}: {shape}. Save uint8 [N, 32, 32, 3] and labels 0 to 9.")
    return (x_train, y_train.ravel()), (x_test, y_test.ravel())


def _batches(place: Path) -> tuple[Pair, Pair]:
    folder = place / FOLDER if (place / FOLDER).is_dir() else place
    return _batch(folder / "data_batch_1"), _batch(folder / "test_batch")


def _batch(path: Path) -> Pair:
    """Images and labels of one python batch."""
    if not path.is_file():
        raise BadData(f"{path}: is missing. Unpack the python version of CIFAR-10 here.")
    try:
        pixels, labels = _contents(path.read_bytes())
    except Exception as error:  # pickletools can raise any error
        raise BadData(f"{path}: is damaged ({error}). Unpack it again.") from error
    if len(pixels) != BATCH * PIXELS or len(labels) != BATCH or not set(labels) <= set(range(10)):
        found = f"{len(pixels) // PIXELS} images and {len(labels)} labels"
        raise BadData(f"{path}: holds {found} instead of {BATCH}. Unpack the python version of CIFAR-10.")
    planes = np.frombuffer(pixels, np.uint8).reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), np.array(labels)


def _contents(pickled: bytes) -> tuple[bytes, list[int]]:
    """The longest string, and the whole numbers after the key `labels`."""
    longest: bytes = b""
    labels: list[int] = []
    in_labels = False
    for opcode, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, (str, bytes)):
            text = argument.encode("latin-1") if isinstance(argument, str) else argument
            in_labels = text == b"labels"
            longest = max(longest, text, key=len)
        elif in_labels and isinstance(argument, int) and opcode.name.startswith("BININT"):
            labels.append(argument)
    return longest, labels


def _cut(images: np.ndarray, labels: np.ndarray, count: int) -> Split:
    return Split(images[:count], labels[:count].astype(np.int64), np.arange(min(count, len(labels))))
