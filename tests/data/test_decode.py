"""Image files to tensors: the same pixels as the weights were evaluated on, in order, ahead of time."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.helpers.image_trees import pictures, write_picture
from tta_bench.api import Data, Domain, View
from tta_bench.data.images import decode
from tta_bench.data.images.pixels import to_tensor
from tta_bench.data.problems import BadData
from tta_bench.execution.stream_reader import read_batches
from tta_bench.models.timm_tags import facts_of


@pytest.mark.parametrize("size", [(500, 375), (333, 500), (224, 224), (256, 257), (180, 150)])
@pytest.mark.parametrize("tag", ["vit_base_patch16_224.augreg2_in21k_ft_in1k", "resnet50.tv_in1k"])
def test_images_are_cut_as_timm_evaluates_the_weights(
    tmp_path: Path, tag: str, size: tuple[int, int]
) -> None:
    from timm.data import create_transform, resolve_data_config
    from timm.models import get_pretrained_cfg

    write_picture(tmp_path / "a.JPEG", 3, size)
    wanted = create_transform(**resolve_data_config(pretrained_cfg=get_pretrained_cfg(tag).to_dict()))
    theirs = wanted(Image.open(tmp_path / "a.JPEG"))
    facts = facts_of(tag)
    ours = to_tensor(decode.read_all([tmp_path / "a.JPEG"], facts.view))[0]
    mean, std = (torch.tensor(facts.scale[key]).view(3, 1, 1) for key in ("mean", "std"))
    assert torch.allclose((ours - mean) / std, theirs, atol=1e-6)


def test_images_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.JPEG" for i in range(20)]
    for i, path in enumerate(paths):
        write_picture(path, i, (40, 40))
    together = decode.read_all(paths, View(32, 0))
    assert all(np.array_equal(together[i], decode.read(path, View(32, 0))) for i, path in enumerate(paths))


def test_grey_and_transparent_images_become_colour(tmp_path: Path) -> None:
    for mode in ("L", "CMYK"):
        Image.fromarray(pictures()[0]).convert(mode).save(tmp_path / f"{mode}.jpg")
    Image.fromarray(pictures()[0]).convert("RGBA").save(tmp_path / "RGBA.png")
    images = decode.read_all(sorted(tmp_path.iterdir()), View(32, 0))
    assert images.shape == (3, 32, 32, 3)


def test_a_file_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    write_picture(tmp_path / "good.JPEG", 0)
    whole = (tmp_path / "good.JPEG").read_bytes()
    (tmp_path / "short.JPEG").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.JPEG").write_text("no picture")
    for name in ("short.JPEG", "text.JPEG", "absent.JPEG"):
        with pytest.raises(BadData, match=rf"{name}: cannot be decoded"):
            decode.read_all([tmp_path / "good.JPEG", tmp_path / name], View(224, 0))
    with pytest.raises(BadData, match="224 x 224 pixels, and 384 are needed"):
        decode.read(tmp_path / "good.JPEG", View(384, 0))


class Slow(Data):
    """Data that remembers what was read, and by whom."""

    read_ahead = 2
    num_classes = 10
    input_size = 1

    def __init__(self) -> None:
        self.read: list[int] = []
        self.threads: set[str] = set()

    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        if index[0] == 99:
            raise BadData("99.JPEG: cannot be decoded")
        self.read.append(int(index[0]))
        self.threads.add(threading.current_thread().name)
        return torch.tensor([[[[float(index[0])]]]])


BATCHES = [np.array([[0, i]]) for i in range(6)]  # number of the domain, number of the image


def test_batches_are_read_ahead_and_in_order() -> None:
    data = Slow()
    given = read_batches(data, [Domain("clean", 0)], BATCHES)
    assert next(given).item() == 0
    assert [float(x) for x in given] == [1, 2, 3, 4, 5]
    assert data.read == [0, 1, 2, 3, 4, 5]
    assert threading.current_thread().name not in data.threads


def test_what_nobody_asks_for_is_not_read() -> None:
    data = Slow()
    given = read_batches(data, [Domain("clean", 0)], BATCHES)
    next(given)
    given.close()  # type: ignore[attr-defined]
    assert len(data.read) <= 1 + Slow.read_ahead
    assert not any(thread.name.startswith("read-ahead") for thread in threading.enumerate())


def test_an_unreadable_file_stops_the_stream_where_it_is() -> None:
    given = read_batches(Slow(), [Domain("clean", 0)], [*BATCHES[:2], np.array([[0, 99]])])
    assert [float(next(given)), float(next(given))] == [0, 1]
    with pytest.raises(BadData, match=r"99\.JPEG"):
        next(given)


def test_data_in_memory_is_read_in_the_thread_that_asks() -> None:
    data = Slow()
    data.read_ahead = 0  # type: ignore[misc]
    assert [float(x) for x in read_batches(data, [Domain("clean", 0)], BATCHES)] == list(range(6))
    assert data.threads == {threading.current_thread().name}
