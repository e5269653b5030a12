"""Files from others: read as tensors and plain data only; names from others: printed, never obeyed."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.faults.conftest import Bench
from tta_bench.errors import UserError
from tta_bench.execution import calibration
from tta_bench.storage import codec
from tta_bench.storage.checkpoints import Checkpoint, Checkpoints, DamagedCheckpoint
from tta_bench.tables import references
from tta_bench.tables.references.files import COLUMNS

ROOT = Path(__file__).parents[2]
SHIPPED = [
    path for name in ("tta_bench", "methods", "quantizers") for path in sorted((ROOT / name).rglob("*.py"))
]
# What can run code that stands in a file, or hand a text to a shell: patterns, and lines that they find.
FORBIDDEN = {
    r"(import|from) (pickle(?! import UnpicklingError)|dill|cloudpickle|joblib|shelve|marshal)\b": [
        "import pickle",
        "from joblib import load",
        "import shelve",
    ],
    r"torch\.load\((?!.*weights_only=True)": ["torch.load(path)", "torch.load(path, weights_only=False)"],
    r"torch\.save\((?!.*file\))": ["torch.save(model, path)"],
    r"allow_pickle\s*=\s*True": ["np.load(path, allow_pickle=True)"],
    r"yaml\.(unsafe_|full_|Unsafe|Full|Loader\b)|yaml\.load\((?!.*_UniqueKeyLoader)": [
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
    ],
    r"shell\s*=\s*True|os\.system|os\.popen|commands\.getoutput": ["run(x, shell=True)", "os.system(x)"],
    r"(?<![\w.])(eval|exec)\(": ["eval(text)", "exec(text)"],
}


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_nothing_shipped_can_run_what_stands_in_a_file(pattern: str) -> None:
    for line in FORBIDDEN[pattern]:
        assert re.search(pattern, line)
    assert len(SHIPPED) > 100
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in SHIPPED
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not found


# -- trees of tensors ------------------------------------------------------------------------------

ARRAYS = arrays.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.uint32, np.bool_, np.complex64]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
TENSORS = arrays.arrays(
    st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8, np.bool_]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
).map(lambda a: torch.from_numpy(np.ascontiguousarray(a)).reshape(a.shape))
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    ARRAYS,
    TENSORS,
    TENSORS.map(lambda t: t.to(torch.bfloat16)),
    TENSORS.map(lambda t: t.T if t.ndim == 2 else t),
    st.floats(width=32).map(np.float32),
    st.integers(0, 255).map(np.uint8),
)
TREES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(
            st.one_of(st.text(max_size=5), st.integers(), st.tuples(st.integers())), inner, max_size=4
        ),
    ),
    max_leaves=10,
)


def same(a: Any, b: Any) -> bool:
    """Whether two trees are alike in every bit, type and stride."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        # where an axis has one entry or none, its stride means nothing
        laid_out = (a.is_contiguous() and b.is_contiguous()) or a.stride() == b.stride()
        return a.dtype == b.dtype and a.shape == b.shape and laid_out and raw(a) == raw(b)
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


def raw(tensor: torch.Tensor) -> bytes:
    flat = tensor.contiguous().view(-1)
    return flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(state=TREES)
def test_any_state_comes_back_as_it_was(state: Any) -> None:
    assert same(codec.decode(codec.encode(state)), state)


def test_tensors_that_share_memory_are_saved_apart() -> None:
    whole = torch.arange(6.0)
    state = {"whole": whole, "part": whole[2:4], "again": [whole, torch.nn.Parameter(whole)]}
    found = codec.decode(codec.encode(state))
    assert found["part"].tolist() == [2, 3]
    assert found["again"][1].tolist() == whole.tolist()
    found["whole"][2] = 9
    assert found["part"].tolist() == [2, 3]


@pytest.mark.parametrize("thing", [object(), {1, 2}, print, np.array([print]), torch.nn.Linear(1, 1)])
def test_what_is_neither_tensor_nor_plain_data_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match=r"state\['deep'\]\[1\]: "):
        codec.encode({"deep": [0, thing]})


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(noise=st.binary(max_size=200), cut=st.integers(0, 400), flip=st.integers(0, 3000))
def test_damaged_bytes_are_noticed_and_never_run(noise: bytes, cut: int, flip: int) -> None:
    good = codec.encode({"a": torch.arange(9), "b": [1, "x", None]})
    flipped = bytearray(good)
    flipped[flip // 8 % len(good)] ^= 1 << flip % 8
    for bad in (noise, good[: cut % len(good)], good + noise, bytes(flipped)):
        with suppress(codec.BadEncoding):  # a flip in a number is not seen here, but by the file's digest
            codec.decode(bad)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(flip=st.integers(0, 10**6))
def test_any_flipped_bit_of_a_checkpoint_is_noticed(
    flip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp() / "flipped"
    folder.mkdir(exist_ok=True)
    checkpoints = Checkpoints(folder)
    checkpoints.save(Checkpoint("key", 3, 1, codec.encode({"a": torch.arange(5)})))
    path = folder / "checkpoints" / "key.checkpoint"
    content = bytearray(path.read_bytes())
    content[flip // 8 % len(content)] ^= 1 << flip % 8
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpoint, match="set aside"):
        checkpoints.load("key")
    assert checkpoints.load("key") is None


def test_a_checkpoint_under_anothers_name_is_not_taken(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(Checkpoint("mine", 3, 1, b""))
    (tmp_path / "checkpoints" / "mine.checkpoint").rename(tmp_path / "checkpoints" / "yours.checkpoint")
    with pytest.raises(DamagedCheckpoint):
        checkpoints.load("yours")


# -- calibrations and references ---------------------------------------------------------------------


def test_a_damaged_calibration_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTA_BENCH_CACHE", str(tmp_path))
    facts, made = {"weights": "a" * 64}, []

    def make() -> dict[str, torch.Tensor]:
        made.append(1)
        return {"scale": torch.arange(5.0), "codes": torch.arange(6, dtype=torch.uint8).view(2, 3)}

    assert calibration.cached(facts, make).keys() == {"scale", "codes"}
    calibration.cached(facts, make)
    assert len(made) == 1
    (path,) = (tmp_path / "calibrations").iterdir()
    good = path.read_bytes()
    damages = {
        "a bit": good[:-3] + bytes([good[-3] ^ 4]) + good[-2:],
        "cut": good[:-3],
        "noise": b"x" * 200,
        "empty": b"",
        "other facts": good.replace(b"weights", b"waights"),
        "no JSON": good.replace(b'{\\"weights', b'[\\"weights'),
    }
    for name, content in damages.items():
        path.write_bytes(content)
        count = len(made)
        assert calibration.cached(facts, make)["scale"].tolist() == [0, 1, 2, 3, 4]
        assert len(made) == count + 1, name


@pytest.mark.parametrize(
    "about", ["", "[]", "title: x", "a: [", "tables: 3\nmodels: 3\nmethods: 3\ntitle: x", "\0"]
)
@pytest.mark.parametrize("rows", ["", "a,b\n1,2\n", "HEADER\n1,2,3,4,5,6,7,8\n", "\0"])
def test_a_reference_that_is_none_is_refused(about: str, rows: str, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(rows.replace("HEADER", ",".join(COLUMNS)))
    (tmp_path / "mine.yaml").write_text(about)
    with pytest.raises(UserError, match=r"mine\.csv"):
        references.load(str(tmp_path / "mine.csv"))


# -- names as text ---------------------------------------------------------------------------------

HOSTILE = (
    r"\input{/etc/passwd} $x^2$ 100% _a #1 & <script>alert(1)</script> <img src=x onerror=y> `id` |x| *b*"
)


class Tags(HTMLParser):
    """The elements and attributes that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen |= {tag, *(name for name, _ in attributes)}


def test_a_hostile_name_is_a_name_in_every_format(bench: Bench) -> None:
    bench.write(
        [
            {"use": "source", "name": HOSTILE[:100]},
            {"use": "drift", "name": "[red]x[/red]", "fault": "raise", "at": 1},
        ],
        stream={"rounds": 1, "limit": 4},
    )
    bench.here()
    html = Tags()
    html.feed(bench.tables("html"))
    assert not {"script", "img", "onerror"} & html.seen
    latex = bench.tables("latex")
    assert "\\input{" not in latex
    assert r"\textbackslash" in latex
    assert re.search(r"(?<!\\)[%#_&$]", latex.split("alert")[0].rsplit("textbackslash", 1)[1]) is None
    assert HOSTILE[:60] in json.dumps(json.loads(bench.tables("json")), ensure_ascii=False).replace(
        "\\\\", "\\"
    )
    for format in ("text", "markdown", "csv"):
        assert "alert" in bench.tables(format)
