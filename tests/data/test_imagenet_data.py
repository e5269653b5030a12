"""ImageNet and its corrupted, rendered and sketched kin, on small trees in the true layouts."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.helpers.image_trees import (
    CLASSES,
    RENDITIONS,
    files_hashed,
    val_name,
    write_classes,
    write_imagenet,
    write_imagenet_c,
    write_picture,
)
from tta_bench import testing
from tta_bench.api import Domain
from tta_bench.config.parameters import spelled_out
from tta_bench.data.corrupted.file_cache import AS_SAVED, CLEAN_CUT, CorruptedFiles
from tta_bench.data.imagenet import wnids
from tta_bench.data.imagenet.clean import KAGGLE_TABLE, SYNSET_LISTS
from tta_bench.data.imagenet.imagenet import ImageNet
from tta_bench.data.imagenet.imagenet_c import ImageNetC
from tta_bench.data.imagenet.variants import ImageNetR, ImageNetSketch
from tta_bench.data.images import decode
from tta_bench.models.imagenet import ResNet50, VitB
from tta_bench.plugins import registry

CLEAN, FOG, SNOW = Domain("clean", 0), Domain("fog", 5), Domain("snow", 5)
EACH = 6
SMALL: dict[str, Any] = dict(partial=True, source_count=4)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All sets, as their archives are unpacked."""
    base = tmp_path_factory.mktemp("sets")
    write_imagenet(base / "imagenet", EACH)
    write_imagenet_c(base / "imagenet-c", each=EACH)
    write_classes(base / "imagenet-r", 2, RENDITIONS, (260, 240))
    write_classes(base / "imagenet-sketch" / "sketch", 2, CLASSES, (240, 260))
    return base


@pytest.fixture
def sets(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to spoil; files are linked, not copied."""
    shutil.copytree(published, tmp_path / "sets", copy_function=os.link)
    monkeypatch.setenv("TTA_BENCH_DATA", str(tmp_path / "sets"))
    return tmp_path / "sets"


def repaint(path: Path) -> None:
    """Another picture in a file of the same size: what follows a picture's end does not matter."""
    size = path.stat().st_size
    path.unlink()
    write_picture(path, 777, quality=10)
    path.write_bytes(path.read_bytes().ljust(size, b" "))
    assert path.stat().st_size == size


def spoil(path: Path, content: bytes) -> None:
    """Other bytes under a name, without touching the file that the name was linked to."""
    path.unlink()
    path.write_bytes(content)


# Classes ------------------------------------------------------------------------------------------


def test_classes_are_those_that_timm_knows() -> None:
    from timm.data import ImageNetInfo

    assert list(wnids.imagenet()) == ImageNetInfo("imagenet-1k").label_names()
    assert len(wnids.rendition()) == 200
    assert set(wnids.rendition()) < set(wnids.imagenet())


@pytest.mark.parametrize("name", ["imagenet", "imagenet-c", "imagenet-r", "imagenet-sketch"])
def test_contract(sets: Path, name: str) -> None:
    outcomes = testing.check("data", name, **SMALL)
    assert not any(outcome.skipped for outcome in outcomes)


@pytest.mark.parametrize("name", ["imagenet", "imagenet-c", "imagenet-r", "imagenet-sketch"])
def test_without_files_the_place_is_asked_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TTA_BENCH_DATA", raising=False)
    cls = registry.load("data", name)
    domains = [Domain(d, 0) for d in cls().own_domains()]
    (problem,) = cls().problems(domains)
    assert "not part of the package" in problem
    assert "data.root" in problem
    (problem,) = cls(root=str(tmp_path / "nowhere")).problems(domains)
    assert f"{tmp_path / 'nowhere'}: there is no such folder" in problem
    assert cls().fingerprint() == ""


# The validation set -------------------------------------------------------------------------------


def test_test_and_source_images_are_disjoint(sets: Path) -> None:
    data = ImageNet(**SMALL)
    tested = {file.key for file in data.tested()}
    source = {"/".join(path.parts[-2:]) for path in data.source_paths()}
    assert (len(tested), len(source)) == (4 * EACH - 4, 4)
    assert not tested & source
    shared = ImageNet(**SMALL, source="shared")
    assert len(shared.tested()) == 4 * EACH
    assert shared.source_paths() == data.source_paths()
    assert shared.fingerprint() != data.fingerprint()


def test_source_images_come_from_train_if_it_is_there(sets: Path) -> None:
    before = ImageNet(**SMALL).fingerprint()
    write_classes(sets / "imagenet" / "train", 3, shift=500)
    data = ImageNet(**SMALL)
    assert len(data.tested()) == 4 * EACH
    assert {path.parts[-3] for path in data.source_paths()} == {"train"}
    assert {path.parts[-2] for path in data.source_paths()} == set(CLASSES), "classes take turns"
    assert data.problems([CLEAN]) == []
    assert data.source_images().shape == (4, 3, 224, 224)
    assert data.fingerprint() != before
    assert len(ImageNet(partial=True, source_count=10).source_paths()) == 10


def test_the_order_is_fixed_and_mixes_classes(sets: Path) -> None:
    names = [file.name for file in ImageNet(**SMALL).tested()[:6]]
    assert names == [val_name(n) for n in (10, 13, 0, 8, 21, 16)], "the order has changed: bump versions"
    assert len(set(ImageNet(**SMALL).test_labels()[:8])) == 4


def test_fingerprints_know_names_and_contents_but_not_roots(sets: Path, published: Path) -> None:
    here, there = ImageNet(**SMALL), ImageNet(root=str(published / "imagenet"), **SMALL)
    assert here.fingerprint() == there.fingerprint()
    victim = sets / "imagenet" / "val" / CLASSES[0] / val_name(0)
    victim.rename(victim.with_name("other.JPEG"))
    assert ImageNet(**SMALL).fingerprint() != there.fingerprint()


SHOWN = {
    "imagenet": (ImageNet, CLEAN, "imagenet/val"),
    "imagenet-c": (ImageNetC, FOG, "imagenet-c/fog/5"),
    "imagenet-c clean": (ImageNetC, CLEAN, "imagenet/val"),
    "imagenet-r": (ImageNetR, Domain("rendition", 0), "imagenet-r"),
    "imagenet-sketch": (ImageNetSketch, Domain("sketch", 0), "imagenet-sketch/sketch"),
}


def marks(cls: type, domain: Domain) -> tuple[str, str]:
    data = cls(**SMALL)
    return data.fingerprint(), data.domain_fingerprint(domain)


@pytest.mark.parametrize("name", SHOWN)
def test_fingerprints_notice_an_image_of_the_same_name_and_size(sets: Path, name: str) -> None:
    cls, domain, folder = SHOWN[name]
    before = marks(cls, domain)
    repaint(sets / folder / cls(**SMALL).tested()[0].key)
    assert marks(cls, domain) != before


@pytest.mark.parametrize("name", SHOWN)
def test_fingerprints_notice_another_source(sets: Path, name: str) -> None:
    cls, domain, _ = SHOWN[name]
    before = marks(cls, domain)
    repaint(cls(**SMALL).source_paths()[0])
    assert marks(cls, domain) != before


def test_only_domains_in_use_are_read(sets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = files_hashed(monkeypatch)
    write_picture(sets / "imagenet-c" / "fog" / "5" / CLASSES[0] / "not_in_val.JPEG", 0)
    data = ImageNetC(**SMALL)
    data.fingerprint()
    assert sorted(read) == sorted(data.source_paths())
    read.clear()
    data.domain_fingerprint(FOG)
    folder = sets / "imagenet-c" / "fog" / "5"
    assert sorted(read) == sorted(folder / file.key for file in data.tested())


@pytest.mark.parametrize("table", [KAGGLE_TABLE, *SYNSET_LISTS])
@pytest.mark.parametrize("beside", [False, True])
def test_a_flat_folder_with_a_table_is_the_same_data(sets: Path, table: str, beside: bool) -> None:
    wanted = ImageNet(**SMALL)
    fingerprint, labels = wanted.fingerprint(), wanted.test_labels()
    images = wanted.test_images(CLEAN, np.arange(3))
    place = flatten(sets / "imagenet" / "val")
    lines = [place[name] for name in sorted(place)]
    if table == KAGGLE_TABLE:
        rows = [f"{Path(name).stem},{wnid} 85 1 499 272 " for name, wnid in place.items()]
        lines = ["ImageId,PredictionString", *rows]
    home = sets / "imagenet" if beside else sets / "imagenet" / "val"
    (home / table).write_text("\n".join(lines) + "\n")
    flat = ImageNet(**SMALL)
    assert flat.problems([CLEAN]) == []
    assert flat.fingerprint() == fingerprint
    assert flat.test_labels().tolist() == labels.tolist()
    assert torch.equal(flat.test_images(CLEAN, np.arange(3)), images)


def flatten(val: Path) -> dict[str, str]:
    """Move all images out of their class folders; return the class of each."""
    place = {}
    for path in sorted(val.glob("*/*.JPEG")):
        place[path.name] = path.parent.name
        path.rename(val / path.name)
    for folder in [path for path in val.iterdir() if path.is_dir()]:
        folder.rmdir()
    return place


def test_a_flat_folder_needs_its_table(sets: Path) -> None:
    val = sets / "imagenet" / "val"
    flatten(val)
    (problem,) = ImageNet(**SMALL).problems([CLEAN])
    assert KAGGLE_TABLE in problem
    (val / SYNSET_LISTS[0]).write_text("n01440764\n")
    (problem,) = ImageNet(**SMALL).problems([CLEAN])
    assert f"1 lines for {4 * EACH} images" in problem
    (val / KAGGLE_TABLE).write_text("ImageId,PredictionString\nILSVRC2012_val_00000000,n01440764 1 1 1 1\n")
    (problem,) = ImageNet(**SMALL).problems([CLEAN])
    assert f"no class for {val_name(1)}" in problem


def test_the_model_says_how_images_are_cut(sets: Path) -> None:
    for model, resize, interpolation in ((VitB(), 248, "bicubic"), (ResNet50(), 256, "bilinear")):
        presets = ImageNet.presets(model)
        assert presets == {"resize": resize, "interpolation": interpolation, "input_size": 224}
        assert ImageNetC.presets(model) == {"resize": resize, "interpolation": interpolation}
    two = [ImageNet(**SMALL, **ImageNet.presets(model)) for model in (VitB(), ResNet50())]
    assert two[0].fingerprint() == two[1].fingerprint()
    assert not torch.equal(*(data.test_images(CLEAN, np.arange(1)) for data in two))


INCOMPLETE: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing classes": (lambda val: None, f"996 of 1000 class folders are missing: {wnids.imagenet()[4]}"),
    "strange folder": (lambda val: (val / "n99").mkdir(), "n99: not a class of this data"),
    "empty class": (lambda val: (val / wnids.imagenet()[5]).mkdir(), f"folder {wnids.imagenet()[5]}"),
}


@pytest.mark.parametrize("case", INCOMPLETE)
def test_an_incomplete_validation_set_is_refused(sets: Path, case: str) -> None:
    change, text = INCOMPLETE[case]
    change(sets / "imagenet" / "val")
    problems = ImageNet(source_count=4).problems([CLEAN])
    assert any(text in problem for problem in problems)
    assert any("and 991 more" in problem or "and 990 more" in problem for problem in problems)


def test_wrong_counts_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wnids, "imagenet", lambda: CLASSES)
    monkeypatch.setattr("tta_bench.data.imagenet.clean.IMAGES_A_CLASS", 3)
    write_imagenet(tmp_path, each=3)
    data = ImageNet(root=str(tmp_path), source_count=2)
    assert data.problems([CLEAN]) == []
    (tmp_path / "val" / CLASSES[2] / val_name(2)).unlink()
    (problem,) = ImageNet(root=str(tmp_path), source_count=2).problems([CLEAN])
    assert f"not 3 images in each class folder: {CLASSES[2]} has 2." in problem
    write_classes(tmp_path / "train", 2, CLASSES[:3])
    assert f"1 class folders are missing: {CLASSES[3]}" in ImageNet(root=str(tmp_path)).problems([CLEAN])[0]


def test_fields_that_cannot_work_are_refused(sets: Path) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ImageNet(source_count=0)
    (problem,) = ImageNet(**SMALL, resize=100).problems([CLEAN])
    assert problem.startswith("resize 100: less than the crop of 224 pixels.")


# Damaged files ------------------------------------------------------------------------------------


def test_damaged_files_are_named_and_strange_but_whole_ones_are_not(sets: Path) -> None:
    folder = sets / "imagenet" / "val" / CLASSES[1]
    first, second, third, fourth = sorted(folder.iterdir())[:4]
    whole = first.read_bytes()
    spoil(first, whole[: len(whole) // 2])
    spoil(second, b"")
    spoil(third, whole + b"some bytes after the end")
    fourth.unlink()
    Image.open(third).save(fourth, "PNG")
    problems = ImageNet(**SMALL).problems([CLEAN])
    assert len(problems) == 2
    assert problems[0].startswith(f"{first}: is damaged or cut short")
    assert problems[1].startswith(f"{second}: is damaged or cut short")


def test_many_damaged_files_are_counted(sets: Path) -> None:
    for path in (sets / "imagenet" / "val").glob("*/*"):
        spoil(path, b"no picture")
    problems = ImageNet(**SMALL, source="shared").problems([CLEAN])
    assert len(problems) == 4 + 20 + 1, "the source's, the first twenty tested ones, and how many more"
    assert problems[-1].endswith(f"{4 * EACH - 20} more like these.")


def test_a_set_found_whole_is_not_read_again(sets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ImageNet(**SMALL).problems([CLEAN]) == []
    monkeypatch.setattr(
        "tta_bench.data.images.integrity._looks_whole", lambda path: pytest.fail(f"read {path}")
    )
    assert ImageNet(**SMALL).problems([CLEAN]) == []
    monkeypatch.undo()
    victim = sets / "imagenet" / "val" / CLASSES[0] / val_name(0)
    spoil(victim, victim.read_bytes()[:-100] + bytes(100))
    monkeypatch.setenv("TTA_BENCH_DATA", str(sets))
    assert len(ImageNet(**SMALL).problems([CLEAN])) == 1, "same size, other time and bytes"


# Corruptions made here ----------------------------------------------------------------------------


def test_regenerated_files_have_gone_through_the_published_steps(sets: Path) -> None:
    data = ImageNet(**SMALL)
    data.prepare(FOG, 3)
    made = data.test_images(FOG, np.arange(3))
    file = data.tested()[0]
    jpeg = io.BytesIO(data.corrupted(FOG).file(file))
    with Image.open(jpeg) as image:
        assert image.size == (224, 224)
        assert image.format == "JPEG"
        tables = image.quantization  # type: ignore[attr-defined]
    reference = io.BytesIO()
    clean = decode.read(data.clean.val.path(file), CLEAN_CUT)
    Image.fromarray(clean).save(reference, "JPEG", quality=85)
    with Image.open(reference) as image:
        assert tables == image.quantization  # type: ignore[attr-defined]
    saved = decode.pixels(jpeg, AS_SAVED)
    assert np.array_equal((made[0] * 255).round().byte().permute(1, 2, 0).numpy(), saved)
    assert np.abs(saved.astype(int) - clean).mean() > 5, "fog is to be seen"


def test_regenerated_files_are_made_once_and_belong_to_their_seed(
    sets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, other = ImageNet(**SMALL), ImageNet(**SMALL, corruption_seed=1)
    index = np.arange(1)
    assert not torch.equal(data.test_images(FOG, index), other.test_images(FOG, index))
    assert data.fingerprint() != other.fingerprint()
    monkeypatch.setattr(CorruptedFiles, "_make", lambda self, file: pytest.fail(f"makes {file} again"))
    data.prepare(FOG, 1)
    ImageNet(**SMALL).test_images(FOG, index)


def test_regenerated_images_follow_an_image_of_the_same_name_and_size(sets: Path) -> None:
    data, index = ImageNet(**SMALL), np.arange(1)
    before = data.test_images(FOG, index)
    repaint(data.clean.val.path(data.tested()[0]))
    assert not torch.equal(ImageNet(**SMALL).test_images(FOG, index), before)


def test_regenerated_images_belong_to_the_code_of_their_corruption(
    sets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = np.arange(2)
    ImageNet(**SMALL).test_images(FOG, index)
    monkeypatch.setattr(
        "tta_bench.data.corrupted.file_cache.code_of", lambda group, name: f"edited {group} {name}"
    )
    monkeypatch.setattr(CorruptedFiles, "_make", lambda self, file: pytest.fail(f"makes {file.name} again"))
    with pytest.raises(pytest.fail.Exception, match=r"makes .* again"):
        ImageNet(**SMALL).test_images(FOG, index)


def test_regenerated_images_need_no_cache(sets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ImageNet(**SMALL).test_images(FOG, np.arange(2))
    (sets / "file").touch()
    monkeypatch.setenv("TTA_BENCH_CACHE", str(sets / "file" / "cache"))
    data = ImageNet(**SMALL)
    data.prepare(FOG, 2)
    assert torch.equal(data.test_images(FOG, np.arange(2)), wanted)


def test_a_value_behind_the_name_is_the_root() -> None:
    assert spelled_out("data", "imagenet:DIR") == ("imagenet", {"root": "DIR"})
    assert spelled_out("data", "folder:DIR") == ("folder", {"root": "DIR"})


def test_regenerated_images_say_so() -> None:
    assert "regenerated, not the published files" in ImageNet().note()
    assert ImageNetC().note() == ""


def test_corruptions_are_of_one_size(sets: Path) -> None:
    data = ImageNet(**SMALL, input_size=160)
    assert data.problems([CLEAN]) == []
    (problem,) = data.problems([FOG])
    assert "224 pixels per side, the model reads 160" in problem


# ImageNet-C ---------------------------------------------------------------------------------------


def test_every_domain_shows_the_validation_images_in_one_order(sets: Path) -> None:
    data = ImageNetC(**SMALL)
    assert data.problems([CLEAN, FOG, SNOW]) == []
    assert data.test_labels().tolist() == ImageNet(**SMALL).test_labels().tolist()
    file = data.tested()[2]
    path = sets / "imagenet-c" / "fog" / "5" / file.folder / file.name
    with Image.open(path) as image:
        wanted = np.asarray(image)
    shown = data.test_images(FOG, np.array([2]))[0]
    assert np.array_equal((shown * 255).round().byte().permute(1, 2, 0).numpy(), wanted)
    assert not torch.equal(shown, data.test_images(SNOW, np.array([2]))[0])


def test_without_val_the_first_domain_says_what_there_is(sets: Path) -> None:
    write_classes(sets / "imagenet" / "train", 2)
    shutil.rmtree(sets / "imagenet" / "val")
    data = ImageNetC(**SMALL)
    assert data.problems([FOG, SNOW]) == []
    assert len(data.test_labels()) == 4 * EACH
    assert data.source_images().shape == (4, 3, 224, 224)
    (problem,) = data.problems([CLEAN])
    assert problem == f"clean: {sets / 'imagenet'} has no val. Unpack it there."


def test_imagenet_is_found_beside_imagenet_c(sets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ImageNetC(**SMALL).fingerprint()
    monkeypatch.delenv("TTA_BENCH_DATA")
    data = ImageNetC(root=str(sets / "imagenet-c"), **SMALL)
    assert data.fingerprint() == wanted
    (sets / "imagenet").rename(sets / "elsewhere")
    (problem,) = ImageNetC(root=str(sets / "imagenet-c"), **SMALL).problems([FOG])
    assert "data.imagenet_root" in problem
    moved = ImageNetC(root=str(sets / "imagenet-c"), imagenet_root=str(sets / "elsewhere"), **SMALL)
    assert moved.fingerprint() == wanted


def test_missing_imagenet_c_has_an_alternative(sets: Path) -> None:
    shutil.rmtree(sets / "imagenet-c")
    (problem,) = ImageNetC(**SMALL).problems([FOG])
    assert "use data imagenet, which corrupts" in problem


def test_a_domain_that_differs_in_names_or_bytes_is_noticed(sets: Path) -> None:
    before = ImageNetC(**SMALL).domain_fingerprint(FOG)
    victim = next((sets / "imagenet-c" / "fog" / "5" / CLASSES[0]).iterdir())
    spoil(victim, victim.read_bytes() + b" ")
    assert ImageNetC(**SMALL).domain_fingerprint(FOG) != before
    assert ImageNetC(**SMALL).domain_fingerprint(Domain("fog", 4)) == ""
    lost = ImageNetC(**SMALL).tested()[0]
    (sets / "imagenet-c" / "fog" / "5" / lost.folder / lost.name).unlink()
    (problem,) = ImageNetC(**SMALL).problems([FOG])
    assert f"1 images are missing: {lost.key}" in problem


# ImageNet-R and ImageNet-Sketch -------------------------------------------------------------------


def test_renditions_are_scored_among_their_200_classes(sets: Path) -> None:
    data = ImageNetR(**SMALL)
    domain = Domain("rendition", 0)
    assert data.own_domains() == ("rendition",)
    assert data.problems([domain]) == []
    kept = data.classes()
    assert [wnids.imagenet()[i] for i in kept] == list(wnids.rendition())
    for file, label in zip(data.tested(), data.test_labels(), strict=True):
        assert wnids.imagenet()[kept[label]] == file.folder
    assert data.test_images(domain, np.arange(2)).shape == (2, 3, 224, 224)


def test_sketches_may_lie_one_folder_deeper(sets: Path) -> None:
    data = ImageNetSketch(**SMALL)
    assert data.problems([Domain("sketch", 0)]) == []
    assert data.classes() is None
    assert sorted(set(data.test_labels())) == [0, 1, 2, 3]


def test_variants_are_refused_if_incomplete_or_asked_for_corruptions(sets: Path) -> None:
    (problem,) = ImageNetR(**SMALL).problems([FOG])
    assert "imagenet-r has one domain, rendition" in problem
    problems = ImageNetR(source_count=4).problems([Domain("rendition", 0)])
    assert "197 of 200 class folders are missing" in problems[0]
    write_picture(sets / "imagenet-r" / CLASSES[0] / "art_0.jpg", 0)
    problems = ImageNetR(**SMALL).problems([Domain("rendition", 0)])
    assert f"{CLASSES[0]}: not a class of this data" in problems[0]
