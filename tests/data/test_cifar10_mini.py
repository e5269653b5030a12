"""The embedded data, and corrupted sets on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from tta_bench.api import Domain
from tta_bench.data.cifar10.contact_sheet import cut, read_index, read_split, tile
from tta_bench.data.cifar10.mini import Cifar10Mini
from tta_bench.data.corrupted import array_cache

ASSETS = Path(str(files("tta_bench") / "assets" / "cifar10-mini"))
FOG = Domain("fog", 5)
IMAGES = np.random.default_rng(0).integers(0, 256, (20, 4, 4, 3), dtype=np.uint8)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; returns where corrupted sets go."""
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path))
    return tmp_path / "corrupted"


def darker(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
    """A corruption that is easy to foretell."""
    return image // (severity + 1)


def small_set() -> array_cache.CorruptedArrays:
    return array_cache.CorruptedArrays("fingerprint", IMAGES, np.arange(20), "darker", darker, 1, 0)


# The images ---------------------------------------------------------------------------------------


def test_classes_are_balanced_in_every_prefix() -> None:
    labels = Cifar10Mini().test_labels()
    assert (len(labels), labels.dtype) == (2000, np.int64)
    for count in (10, 70, 500, 2000):
        assert np.bincount(labels[:count], minlength=10).tolist() == [count // 10] * 10


def test_index_names_real_and_distinct_images() -> None:
    index = read_index(ASSETS)
    for name, total, count in (("test", 10_000, 2000), ("train", 50_000, 512)):
        indices = index[name]["indices"]
        assert len(set(indices)) == len(indices) == len(index[name]["labels"]) == count
        assert 0 <= min(indices) <= max(indices) < total
    counts = np.bincount(index["train"]["labels"])
    assert counts.max() - counts.min() <= 1
    assert len(index["classes"]) == Cifar10Mini.num_classes


def test_images_have_the_contract_s_form() -> None:
    data = Cifar10Mini()
    source, test = data.source_images(), data.test_images(Domain("clean", 0), np.array([5, 3]))
    assert (source.shape, source.dtype) == ((512, 3, 32, 32), torch.float32)
    assert (test.shape, test.dtype) == ((2, 3, 32, 32), torch.float32)
    assert source.is_contiguous()
    assert test.is_contiguous()
    assert source.min() == 0
    assert source.max() == 1
    assert torch.equal(test[1], data.test_images(Domain("clean", 0), np.array([3]))[0])


def test_fingerprint_follows_the_seed_of_the_corruptions() -> None:
    assert Cifar10Mini().fingerprint() == Cifar10Mini(corruption_seed=0).fingerprint()
    assert Cifar10Mini().fingerprint() != Cifar10Mini(corruption_seed=1).fingerprint()


def test_assets_are_small() -> None:
    assert sum(path.stat().st_size for path in ASSETS.iterdir()) <= 8 * 2**20


def test_damaged_sheet_is_refused(tmp_path: Path) -> None:
    for path in ASSETS.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    index = (tmp_path / "index.json").read_text()
    (tmp_path / "index.json").write_text(index.replace('"labels":[0,1', '"labels":[1,0'))
    with pytest.raises(ValueError, match=r"train.png is damaged. Reinstall"):
        read_split(tmp_path, "train")


def test_cut_undoes_tile() -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    assert np.array_equal(cut(tile(images, 4), 4), images)


# Domains ------------------------------------------------------------------------------------------


def test_domains_that_exist_have_no_problems() -> None:
    assert Cifar10Mini().problems([Domain("clean", 0), FOG, Domain("saturate", 1)]) == []


def test_problems_name_the_remedy() -> None:
    domains = [Domain("fogg", 5), Domain("fogg", 3), Domain("snow", 7), Domain("clean", 2)]
    unknown, severity, clean = Cifar10Mini().problems(domains)
    assert unknown.startswith('unknown corruption "fogg". Did you mean "fog"? Known: brightness, ')
    assert severity == "snow-7: severity 7 does not exist. Use 1 to 5."
    assert clean == "clean-2: clean images have severity 0 only."


def test_corrupted_images_do_not_depend_on_count(store: Path) -> None:
    data, index = Cifar10Mini(), np.array([19, 0, 7])
    data.prepare(FOG, 20)
    few = data.test_images(FOG, index)
    data.prepare(FOG, 60)
    assert torch.equal(few, data.test_images(FOG, np.arange(60))[index])
    assert not torch.equal(few, data.test_images(Domain("clean", 0), index))


def test_seed_changes_the_corruption(store: Path) -> None:
    index = np.arange(3)
    first, second = Cifar10Mini(), Cifar10Mini(corruption_seed=1)
    for data in (first, second):
        data.prepare(FOG, 3)
    assert not torch.equal(first.test_images(FOG, index), second.test_images(FOG, index))


def test_clean_needs_no_cache(store: Path) -> None:
    Cifar10Mini().prepare(Domain("clean", 0), 100)
    assert not store.exists()


# Sets on disk -------------------------------------------------------------------------------------


def test_a_larger_set_serves_a_smaller_count(store: Path) -> None:
    wanted = small_set()
    array_cache.prepare(wanted, 10)
    array_cache.prepare(wanted, 4)
    assert [path.name for path in store.iterdir()] == [wanted.path(10).name]
    assert np.array_equal(array_cache.read(wanted, np.arange(4)), IMAGES[:4] // 2)


def test_a_set_is_made_once(store: Path) -> None:
    wanted = small_set()
    array_cache.prepare(wanted, 10)
    written = wanted.path(10).stat().st_mtime_ns
    array_cache.prepare(wanted, 10)
    array_cache.read(wanted, np.arange(10))
    assert wanted.path(10).stat().st_mtime_ns == written


def test_reading_past_the_set_makes_all_of_it(store: Path) -> None:
    wanted = small_set()
    array_cache.prepare(wanted, 4)
    assert np.array_equal(array_cache.read(wanted, np.array([9])), IMAGES[[9]] // 2)
    assert wanted.path(20).exists()


@pytest.mark.parametrize(
    "change", [{"severity": 2}, {"seed": 1}, {"fingerprint": "other"}, {"name": "paler"}]
)
def test_whatever_decides_the_bytes_is_in_the_name(change: dict[str, object], store: Path) -> None:
    assert replace(small_set(), **change).path(4) != small_set().path(4)  # type: ignore[arg-type]


def test_a_new_version_is_a_new_set(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = small_set().path(4)
    monkeypatch.setitem(globals(), "VERSION", "2")
    assert small_set().path(4) != before


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "garbage": lambda content: b"garbage" * 300,
    "header only": lambda content: content[:128],
    "truncated": lambda content: content[:-7],
    "zeroed": lambda content: content[:128] + bytes(len(content) - 128),
    "one pixel": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_set_is_made_again(damage: str, store: Path) -> None:
    wanted = small_set()
    array_cache.prepare(wanted, 20)
    good = wanted.path(20).read_bytes()
    wanted.path(20).write_bytes(DAMAGES[damage](good))
    assert np.array_equal(array_cache.read(wanted, np.arange(20)), IMAGES // 2)
    assert wanted.path(20).read_bytes() == good


def test_a_failed_attempt_leaves_nothing(store: Path) -> None:
    def fails(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        array_cache.prepare(replace(small_set(), function=fails), 4)
    assert list(store.iterdir()) == []


@pytest.fixture
def no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that cannot be written: below a file."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path / "file" / "cache"))


@pytest.mark.usefixtures("no_store")
def test_where_nothing_can_be_saved_only_the_images_asked_for_are_corrupted() -> None:
    made: list[int] = []

    def counting(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
        made.append(1)
        return darker(image, severity, rng)

    wanted = replace(small_set(), function=counting)
    array_cache.prepare(wanted, 10)
    assert not made
    assert np.array_equal(array_cache.read(wanted, np.array([9, 2])), IMAGES[[9, 2]] // 2)
    assert len(made) == 2
    assert array_cache.read(wanted, np.arange(0)).shape == (0, 4, 4, 3)


def test_images_that_are_not_saved_are_the_same(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = np.array([19, 0, 7])
    saved = Cifar10Mini().test_images(FOG, index)
    (store.parent / "file").touch()
    monkeypatch.setenv("TTA_BENCH_CACHE", str(store.parent / "file" / "cache"))
    assert torch.equal(Cifar10Mini().test_images(FOG, index), saved)


def test_a_full_disk_is_noticed_before_anything_is_computed(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(28, "No space left on device")

    def fails(image: np.ndarray, severity: int, rng: np.random.Generator) -> np.ndarray:
        raise RuntimeError

    monkeypatch.setattr("os.posix_fallocate", refuse)
    array_cache.prepare(replace(small_set(), function=fails), 4)
    assert np.array_equal(array_cache.read(small_set(), np.arange(4)), IMAGES[:4] // 2)
    assert list(store.iterdir()) == []


def test_a_damaged_set_that_cannot_be_replaced_is_not_used(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = small_set()
    array_cache.prepare(wanted, 20)
    damaged = DAMAGES["one pixel"](wanted.path(20).read_bytes())
    wanted.path(20).write_bytes(damaged)
    monkeypatch.setattr("tta_bench.cache.entries.writing", no_space)
    assert np.array_equal(array_cache.read(wanted, np.arange(20)), IMAGES // 2)


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_stray_file_is_ignored(store: Path) -> None:
    wanted = small_set()
    array_cache.prepare(wanted, 20)
    wanted.path("20 (copy)").write_bytes(wanted.path(20).read_bytes())
    assert np.array_equal(array_cache.read(wanted, np.arange(20)), IMAGES // 2)


def test_drafts_of_dead_processes_are_removed(store: Path) -> None:
    store.mkdir()
    draft = store / "tmp1234.draft"
    draft.write_bytes(b"half")
    os.utime(draft, (0, 0))
    array_cache.prepare(small_set(), 4)
    assert [path.name for path in store.iterdir()] == [small_set().path(4).name]


EDITED = """
import sys
import numpy as np
from tta_bench.data.corrupted import array_cache
from dimming import dim

images = np.full((3, 2, 2, 3), 200, np.uint8)
wanted = array_cache.CorruptedArrays("fingerprint", images, np.arange(3), "dim", dim, 1, 0)
array_cache.prepare(wanted, 3)
print(array_cache.read(wanted, np.arange(3))[0, 0, 0, 0])
"""


def test_edited_code_of_the_same_version_makes_new_images(store: Path, tmp_path: Path) -> None:
    def run(divisor: int) -> str:
        body = f'VERSION = "1"\n\ndef dim(image, severity, rng):\n    return image // {divisor}\n'
        (tmp_path / "dimming.py").write_text(body)
        settings = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", EDITED]
        return subprocess.run(command, env=settings, capture_output=True, text=True, check=True).stdout

    assert run(2) == "100\n"
    assert run(4) == "50\n"
    assert run(2) == "100\n"
    assert len(list(store.iterdir())) == 2
