"""The two common formats of CIFAR-10 and CIFAR-100 on disk, read without running code from a file.

The published python versions are pickles. They are never unpickled: the string of pixels and the list of
labels are found by reading the opcodes.
"""

from __future__ import annotations

import pickletools
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tta_bench.data.corrupted.in_memory import Split
from tta_bench.data.problems import BadData

PIXELS = 3 * 32 * 32
NPZ_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
Pair = tuple[np.ndarray, np.ndarray]  # images, labels


@dataclass(frozen=True)
class CifarFiles:
    """The python version of a set: its folder, the pickles that are read of it, and the key of the labels."""

    title: str
    folder: str
    train: str
    train_images: int
    test: str
    test_images: int
    labels: str
    classes: int


# Of the five batches of training images, one has more than enough source images.
CIFAR10 = CifarFiles(
    "CIFAR-10", "cifar-10-batches-py", "data_batch_1", 10_000, "test_batch", 10_000, "labels", 10
)
CIFAR100 = CifarFiles("CIFAR-100", "cifar-100-python", "train", 50_000, "test", 10_000, "fine_labels", 100)


def read_splits(place: Path, files: CifarFiles, train_count: int) -> tuple[Split, Split]:
    """The first training images and all test images under a folder or in an .npz."""
    if not place.exists():
        raise BadData(
            f"{place}: does not exist. Name the folder {files.folder}, or an .npz of the whole set."
        )
    train, test = _npz(place, files) if place.is_file() else _pickles(place, files)
    return _cut(*train, train_count), _cut(*test, len(test[1]))


def _npz(path: Path, files: CifarFiles) -> tuple[Pair, Pair]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in NPZ_ARRAYS if name not in arrays]
            if missing:
                wanted = ", ".join(NPZ_ARRAYS)
                raise BadData(f"{path}: has no array {', '.join(missing)}. Save it with {wanted}.")
            x_train, y_train, x_test, y_test = (np.asarray(arrays[name]) for name in NPZ_ARRAYS)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise BadData(f"{path}: cannot be read as an .npz ({error}). Copy it again.") from error
    last = files.classes - 1
    for name, images, labels in (("train", x_train, y_train), ("test", x_test, y_test)):
        fits = images.shape == (labels.size, 32, 32, 3) and images.dtype == np.uint8 and labels.size
        if not fits or labels.min() < 0 or labels.max() > last:
            shape = f"x_{name} is {images.dtype} {images.shape}, y_{name} {labels.shape}"
            raise BadData(f"{path}: {shape}. Save uint8 [N, 32, 32, 3] and labels 0 to {last}.")
    return (x_train, y_train.ravel()), (x_test, y_test.ravel())


def _pickles(place: Path, files: CifarFiles) -> tuple[Pair, Pair]:
    folder = place / files.folder if (place / files.folder).is_dir() else place
    train = _pickle(folder / files.train, files, files.train_images)
    return train, _pickle(folder / files.test, files, files.test_images)


def _pickle(path: Path, files: CifarFiles, count: int) -> Pair:
    """The images and labels of one file."""
    unpack = f"Unpack the python version of {files.title}"
    if not path.is_file():
        raise BadData(f"{path}: is missing. {unpack} here.")
    try:
        pixels, labels = _contents(path.read_bytes(), files.labels.encode())
    except Exception as error:  # pickletools can raise any error
        raise BadData(f"{path}: is damaged ({error}). Unpack it again.") from error
    if len(pixels) != count * PIXELS or len(labels) != count or not set(labels) <= set(range(files.classes)):
        found = f"{len(pixels) // PIXELS} images and {len(labels)} {files.labels.replace('_', ' ')}"
        raise BadData(f"{path}: holds {found} instead of {count}. {unpack}.")
    planes = np.frombuffer(pixels, np.uint8).reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), np.array(labels)


def _contents(pickled: bytes, key: bytes) -> tuple[bytes, list[int]]:
    """The longest string, and the whole numbers after the key of the labels."""
    longest: bytes = b""
    labels: list[int] = []
    in_labels = False
    for opcode, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, (str, bytes)):
            text = argument.encode("latin-1") if isinstance(argument, str) else argument
            in_labels = text == key
            longest = max(longest, text, key=len)
        elif in_labels and isinstance(argument, int) and opcode.name.startswith("BININT"):
            labels.append(argument)
    return longest, labels


def _cut(images: np.ndarray, labels: np.ndarray, count: int) -> Split:
    return Split(images[:count], labels[:count].astype(np.int64), np.arange(min(count, len(labels))))
