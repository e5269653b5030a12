"""All that a plugin imports: Method, Quantizer, Model, Data, and the small types they exchange.

Images travel as float tensors [B, 3, H, W] in [0, 1]; a `Model` normalises them itself. Plugins are
dataclasses: their fields are their hyper-parameters, hence their YAML schema and part of a cell's key.
"""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt, Interval, Le, Lt
from torch import Tensor, nn

from tta_bench.bases import BASES
from tta_bench.bits import BitRange, Bits, BitWidth
from tta_bench.errors import Unsupported, UserError
from tta_bench.ranges import (
    Count,
    CountOrZero,
    Fraction,
    Momentum,
    NonNegative,
    Positive,
    Seed,
    fit_fields_,
)
from tta_bench.space import Choice, Log, Spaces, Uniform, spaces

if TYPE_CHECKING:
    from tta_bench.data.corruptible import Corruptible, Split
    from tta_bench.models.imagenet import TimmModel
    from tta_bench.models.resnet import ResNetModel
    from tta_bench.models.vim import VimModel
    from tta_bench.models.vit import VitModel

Calibration = dict[str, Tensor]
Progress = Callable[[int, int], None]  # (done, total)
Once = Callable[[str, Callable[[], Calibration]], Calibration]  # (block's name, how to calibrate it)


@dataclass(frozen=True)
class Target:
    """What a preset may depend on: model name, its family, and the bit-widths (`FP32`, `W8A8`, …)."""

    model: str
    family: str
    bits: str


@dataclass(frozen=True)
class Domain:
    """One corruption at one severity; `clean` has severity 0."""

    corruption: str
    severity: int

    def __str__(self) -> str:
        return f"{self.corruption}-{self.severity}"


@dataclass(frozen=True)
class View:
    """How a picture of any size becomes a model's input: its shorter side to `resize`, then the centre."""

    size: int
    resize: int  # 0: the picture is cut as it is
    interpolation: str = "bilinear"


class Plugin:
    """Base of all plugins. Bump `version` whenever the numbers a plugin produces change.

    Fields carry their ranges in their types (`lr: Positive`). A plugin that is constructed, from YAML or in
    Python, has its fields brought to their types before its own `__post_init__` runs.
    """

    version: ClassVar[str] = "1"
    paths: ClassVar[tuple[str, ...]] = ()  # fields that say where, not what: they stay out of keys

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        if "__post_init__" in vars(cls):
            cls.__post_init__ = _after_fitting(cls.__post_init__)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Check what the ranges of single fields cannot say; raise ValueError."""
        fit_fields_(self)

    def title(self) -> str:
        """What its rows are called unless the file names them; empty: as the plugin is."""
        return ""


def _after_fitting(check: Callable[..., None]) -> Callable[..., None]:
    """A plugin's own `__post_init__`, run on fields that fit, whether or not it calls its base's."""

    @wraps(check)
    def fit_and_check(self: Plugin, *given: Any) -> None:
        fit_fields_(self)
        check(self, *given)

    return fit_and_check


# ---------------------------------------------------------------------------------------------------
# Models


NORM_TYPES = (nn.LayerNorm, nn.BatchNorm2d, nn.GroupNorm, nn.RMSNorm)


@dataclass(frozen=True)
class Norm:
    """A normalisation layer and the block it belongs to: -1 is the stem, len(blocks) the last norm."""

    name: str
    block: int
    module: nn.Module


@dataclass
class Passes:
    """Images that went forward and backward through a model, counted as it happens."""

    forward_images: int = 0
    backward_images: int = 0


class Model(nn.Module):
    """One uniform view of a classifier, so that each method is written once for every architecture.

        logits = head(finish(blocks(enter(stem(x)))))

    `stem` is everything up to the first statistics a method may want to look at (patch tokens with
    positions, or the first convolution's output); `enter` is what is left before the first block. `stem`
    reads images through `normalise` alone, so that quantizers can quantise the network's input there.
    """

    family: ClassVar[str]  # one of `tta_bench.families.FAMILIES`, or a name of its own, without presets
    tokens: ClassVar[bool] = True  # the hidden state is a sequence of tokens, not a feature map
    net: Any  # a module tree whose attributes only its adapter knows
    mean: Tensor
    std: Tensor
    head_weight: Tensor
    head_bias: Tensor

    def __init__(
        self,
        net: nn.Module,
        *,
        name: str,
        num_classes: int,
        input_size: int,
        mean: Sequence[float],
        std: Sequence[float],
        weights_sha256: str = "",
    ) -> None:
        super().__init__()
        self.net = net
        self.name = name
        self.num_classes = num_classes
        self.input_size = input_size
        self.weights_sha256 = weights_sha256
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)
        self.bits = Bits()
        self.differentiable = True
        self.passes = Passes()
        # Quantizers put the quantizer of the network's input here; `normalise` applies it.
        self.input_quantizer: nn.Module = nn.Identity()
        # The float classifier outlives its quantisation: T3A starts from these rows.
        self.register_buffer("head_weight", self.classifier.weight.detach(), persistent=False)
        self.register_buffer("head_bias", self.classifier.bias.detach(), persistent=False)

    # What an architecture defines --------------------------------------------------------------

    @property
    @abstractmethod
    def blocks(self) -> Sequence[Any]:
        """The residual blocks in order."""

    @abstractmethod
    def stem(self, x: Tensor, prompt: Tensor | None = None) -> Tensor:
        """Embedding of images in [0, 1]; `prompt` is laid into it (tokens) or under it (pixels)."""

    @abstractmethod
    def enter(self, embedded: Tensor) -> Tensor:
        """The hidden state that the first block reads."""

    @abstractmethod
    def pool(self, hidden: Tensor) -> Tensor:
        """Features z [B, d] from the last block's output; call `finish`, which also counts."""

    @abstractmethod
    def head(self, z: Tensor) -> Tensor:
        """Logits from features."""

    @property
    @abstractmethod
    def classifier(self) -> nn.Linear:
        """The last linear layer."""

    @abstractmethod
    def probe(self, block: int, hidden: Tensor) -> Tensor | None:
        """The layer feature [B, c] read after `block`, or None where the architecture reads none."""

    @abstractmethod
    def stem_samples(self, embedded: Tensor) -> Tensor:
        """The stem's output as [samples, channels], class token excluded."""

    @abstractmethod
    def new_prompt(self, count: int, rng: torch.Generator) -> Tensor:
        """A random prompt: `count` tokens, or the one pixel kernel of a convolutional network."""

    # What all share ----------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """Where it computes; what a method makes itself belongs there too."""
        return self.mean.device

    def normalise(self, x: Tensor) -> Tensor:
        """What the first layer reads: images less the weights' mean, over their deviation, quantised.

        A pixel prompt is added to it afterwards.
        """
        return self.input_quantizer((x - self.mean) / self.std)

    def finish(self, hidden: Tensor) -> Tensor:
        """Features z of a completed pass. Every pass ends here, so this is where it is counted."""
        z = self.pool(hidden)
        self.passes.forward_images += len(z)
        if z.requires_grad:
            z.register_hook(self._count_backward)
        return z

    def _count_backward(self, grad: Tensor) -> None:
        self.passes.backward_images += len(grad)

    def features(self, x: Tensor) -> Tensor:
        """Features z [B, d], the input of the head."""
        hidden = self.enter(self.stem(x))
        for block in self.blocks:
            hidden = block(hidden)
        return self.finish(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.features(x))

    def continue_from(self, hidden: Tensor, start: int = 0) -> tuple[list[Tensor], Tensor]:
        """Run blocks[start:]; return the layer features read on the way, and z."""
        probes = []
        for index, block in enumerate(self.blocks[start:], start):
            hidden = block(hidden)
            probe = self.probe(index, hidden)
            if probe is not None:
                probes.append(probe)
        return probes, self.finish(hidden)

    def norms(self) -> list[Norm]:
        """All normalisation layers with affine parameters, in the order of the network's modules."""
        owner = {id(m): i for i, block in enumerate(self.blocks) for m in block.modules()}
        found, outside = [], -1
        for name, module in self.net.named_modules():
            if id(module) in owner:
                outside = len(self.blocks)
            if isinstance(module, NORM_TYPES) and module.weight is not None:
                found.append(Norm(name, owner.get(id(module), outside), module))
        return found

    def stage_sizes(self) -> list[int]:
        """How many blocks each stage has; a network of one width is one stage."""
        return [len(self.blocks)]

    def closes_branch(self, norm: Norm) -> bool:
        """Whether a norm's output goes straight into the residual sum; pre-norm blocks have none."""
        return False

    def batch_norms(self) -> list[nn.BatchNorm2d]:
        """All BatchNorm2d layers."""
        return [m for m in self.net.modules() if isinstance(m, nn.BatchNorm2d)]

    def use_batch_statistics(self) -> None:
        """Normalise by the batch at hand in every BatchNorm2d, in train and eval mode alike."""
        for norm in self.batch_norms():
            norm.track_running_stats = False
            norm.running_mean = norm.running_var = norm.num_batches_tracked = None

    def target(self) -> Target:
        """The facts presets are chosen by."""
        return Target(self.name, self.family, str(self.bits))


class ModelSource(Plugin):
    """A named model: the dataclass that the `tta_bench.models` entry points refer to."""

    view: View | None = None  # how its weights were evaluated; None: on images of their own size only
    summary: ClassVar[str] = ""

    @property
    @abstractmethod
    def family(self) -> str:
        """One of `tta_bench.families.FAMILIES`, which presets of methods depend on, or another name."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """How many logits it has."""

    @property
    @abstractmethod
    def input_size(self) -> int:
        """The side of its images in pixels."""

    @abstractmethod
    def build(self) -> Model:
        """The model with its weights, in eval mode, without gradients."""

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of the weights; part of every cell's key."""

    @abstractmethod
    def skeleton(self) -> Model:
        """The model with arbitrary weights: for shapes and byte counts, also under fake tensors."""

    def fetch(self) -> None:
        """Download what `build` will read, before its hash is asked for; `problems` tells if that failed."""

    def problems(self) -> list[str]:
        """What keeps this model from being built here: problem and remedy, one sentence each."""
        return []


# ---------------------------------------------------------------------------------------------------
# Source statistics and methods


class Source:
    """What a deployed model may know of its past: clean, unlabelled images of the training domain.

    They are kept in main memory; `batches` brings them to the device, one batch at a time.
    """

    def __init__(self, images: Tensor, batch_size: int = 64, device: torch.device | str = "cpu") -> None:
        self.images, self.batch_size, self.device = images, batch_size, device

    def batches(self) -> Iterator[Tensor]:
        """The clean images, batch by batch; Unsupported if there are none."""
        if not len(self.images):
            raise Unsupported("needs clean images, and the data has none")
        for batch in self.images.split(self.batch_size):
            yield batch.to(self.device)

    def first(self, count: int) -> Source:
        """No more than so many of the images."""
        return Source(self.images[:count], self.batch_size, self.device)

    @torch.no_grad()
    def layer_statistics(
        self, model: Model, prompt: Tensor | None = None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Mean and unbiased standard deviation of every layer feature over the clean images."""
        rows = [model.continue_from(model.enter(model.stem(x, prompt)))[0] for x in self.batches()]
        layers = [torch.cat(parts) for parts in zip(*rows, strict=True)]
        return [z.mean(0) for z in layers], [z.std(0) for z in layers]

    @torch.no_grad()
    def feature_mean(self, model: Model) -> Tensor:
        """Mean of z over the clean images."""
        return torch.cat([model.features(x) for x in self.batches()]).mean(0)


class Method(Plugin):
    """A test-time adaptation method. It sees images and its model: no labels, domains or files.

    `consumes` says what `step` receives: images, or the features z of one ordinary pass (which the
    harness then shares between methods). `memory` says what a prediction depends on: the sample alone
    (`none`), the batch it came in (`batch`), or the whole stream before it (`stream`).

    A method whose state grows over many batches may have `fill()`, which brings it to its full size with
    arbitrary values: byte counts are then taken there.
    """

    family: ClassVar[str] = "learning-free"
    summary: ClassVar[str] = ""
    backprop: ClassVar[bool] = False
    consumes: Literal["images", "features"] = "images"
    outputs: ClassVar[Literal["logits", "probabilities"]] = "logits"
    memory: Literal["none", "batch", "stream"] = "stream"
    search_space: ClassVar[Spaces] = spaces()  # where to look for its parameters; `tta-bench tune` does
    cost: ClassVar[str] = "1/0"  # forwards/backwards a batch, for `list --long`; records count for real
    needs: ClassVar[str] = "-"
    # A stream of smaller batches is refused; a smaller last batch is predicted, and not learnt from.
    min_batch_size: int = 1
    min_batch_reason: ClassVar[str] = ""  # why, if it is more than one image
    gathers: int = 0  # images it waits for before a step, where they arrive in smaller batches

    model: Model
    skipped_updates: int = 0  # updates left out, say because a loss was not finite; see `skip`
    skipped_reasons: Mapping[str, int] = MappingProxyType({})  # how many for which reason; replaced by `skip`

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        if isinstance(cls.cost, str):  # a property may depend on parameters
            passes_of_cost(cls)

    @classmethod
    def presets(cls, target: Target) -> dict[str, Any]:
        """Defaults that depend on the model; filled in before a cell's key is made."""
        return {}

    def unsupported(self, model: Model) -> str | None:
        """Why this method cannot run on this model, told before any data is read."""
        if self.backprop and not model.differentiable:
            return f"needs gradients, which {model.name} {model.bits} does not have: it is quantised"
        return None

    def refuses_batch(self, batch_size: int) -> str | None:
        """Why this method cannot adapt to a stream of such batches, told before any data is read."""
        if batch_size >= self.min_batch_size:
            return None
        why = f": {self.min_batch_reason}" if self.min_batch_reason else ""
        return f"needs batches of at least {self.min_batch_size} images, and they have {batch_size}{why}"

    def skip(self, reason: str) -> None:
        """Count an update that is left out; records and footnotes tell the reason in a few words."""
        self.skipped_updates += 1
        self.skipped_reasons = {**self.skipped_reasons, reason: self.skipped_reasons.get(reason, 0) + 1}

    def counters(self) -> dict[str, int]:
        """What a method counts since its last reset, for records: read at the end of every domain.

        A count that moves with the stream belongs to `state_dict`, too.
        """
        return {}

    def passes_of_step(self) -> tuple[int, int]:
        """Forward and backward passes a batch, as declared in `cost`; of a range the lower end."""
        return passes_of_cost(self)

    def batch_statistics(self, model: Model) -> bool:
        """Whether BatchNorm layers normalise by the batch at hand. Asked only of feature consumers."""
        return False

    def setup(self, model: Model, source: Source) -> None:
        """Take a model of one's own, and whatever is needed of the clean images."""
        self.model = model

    @abstractmethod
    def step(self, x: Tensor) -> Tensor:
        """Predict this batch (logits, or probabilities as `outputs` says) and adapt."""

    @abstractmethod
    def reset(self) -> None:
        """Forget the stream: the next batch is treated as the first was."""

    def state_dict(self) -> dict[str, Any]:
        """All that the stream has changed: tensors and plain data, enough to go on bit for bit."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`'s answer; its tensors are on the model's device, bytes (the states of
        generators) in main memory."""


def passes_of_cost(method: Method | type[Method]) -> tuple[int, int]:
    """The two numbers of a declared cost; UserError if it does not have them."""
    found = re.fullmatch(r"[^/\d]*(\d+)[^/]*/[^/\d]*(\d+)[^/]*", str(method.cost))
    if found is None:
        name = method.__name__ if isinstance(method, type) else type(method).__name__
        raise UserError(
            f'{name}: cost "{method.cost}" does not say forward and backward passes a batch in numbers. '
            "Write e.g. 2/1."
        )
    return int(found[1]), int(found[2])


# ---------------------------------------------------------------------------------------------------
# Quantizers and data


class Quantizer(Plugin):
    """Post-training quantisation in two halves: `calibrate` to plain tensors, `apply` them in place.

    A fresh calibration and one read from disk go through the same `apply`, so both give the same bits.
    """

    differentiable: ClassVar[bool] = False
    calibration_images: ClassVar[int] = 32
    summary: ClassVar[str] = ""
    bits: BitWidth = "W8A8"

    def unsupported(self, model: Model) -> str | None:
        """Why this scheme does not fit this model."""
        return None

    @abstractmethod
    def calibrate(self, model: Model, images: Tensor, progress: Progress) -> Calibration:
        """Codes, scales and zero points by site name, from clean images."""

    @abstractmethod
    def apply(self, model: Model, calibration: Calibration) -> None:
        """Turn the model into its quantised self, in place."""

    @abstractmethod
    def packed_bytes(self, model: Model) -> int:
        """What the integers of an unquantised `model` would need: codes, scales, zero points, the rest."""

    def site_bits(self, model: Model) -> dict[str, Bits]:
        """Bit-widths of layers by their names in `model.net`; a layer that is not named has `bits`."""
        return {}

    def calibration_set(self, source_images: Tensor) -> Tensor:
        """The clean images to calibrate with; Unsupported if it wants some and there are none."""
        if self.calibration_images and not len(source_images):
            raise Unsupported("calibration needs clean images, and the data has none")
        return source_images[: self.calibration_images]

    def quantize(self, model: Model, images: Tensor, progress: Progress = lambda *_: None) -> Model:
        """Calibrate and apply."""
        return self.install(model, self.calibrate(model, images, progress))

    def install(self, model: Model, calibration: Calibration) -> Model:
        """Apply, and say so on the model."""
        self.apply(model, calibration)
        model.bits = Bits.parse(self.bits)
        model.differentiable = self.differentiable
        return model.eval().requires_grad_(False)


class BlockwiseQuantizer(Quantizer):
    """A quantizer that calibrates block by block: a stopped calibration goes on after its last whole block.

    `once(name, calibrate_block)` returns the tensors of a block: those that a stopped calibration has saved,
    else what `calibrate_block()` returns, which is then saved. So the tensors of a block may depend on the
    model, the images, the parameters and earlier blocks, but not on a random generator that several share.
    """

    def calibrate(self, model: Model, images: Tensor, progress: Progress) -> Calibration:
        """Codes, scales and zero points by site name; nothing is saved on the way."""
        return self.calibrate_blocks(model, images, progress, lambda _, calibrate_block: calibrate_block())

    @abstractmethod
    def calibrate_blocks(self, model: Model, images: Tensor, progress: Progress, once: Once) -> Calibration:
        """Codes, scales and zero points by site name, each block calibrated through `once`."""


class Data(Plugin):
    """Clean images to calibrate with, and labelled test images under every domain.

    Test images are in an order of which every prefix is a fair sample, so that `limit` may cut it. So are
    source images, with the class mix of the test images: quantizers take the first ones.
    """

    summary: ClassVar[str] = ""
    read_ahead: ClassVar[int] = 0  # batches to read while the one before them is in use
    size: ClassVar[int] = 50_000  # test images of a domain, for estimates made before any is read

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """How many classes a fitting model has; 0 if that cannot be known here."""

    @property
    @abstractmethod
    def input_size(self) -> int:
        """The side of its images in pixels."""

    @classmethod
    def presets(cls, model: ModelSource) -> dict[str, Any]:
        """Defaults that depend on the model that looks; filled in before a cell's key is made."""
        return {}

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 over what the images are, whatever the presets.

        Empty where there are none, which `problems` then tells.
        """

    def domain_fingerprint(self, domain: Domain) -> str:
        """SHA-256 over what a domain has of its own on disk; empty if all follows from `fingerprint`."""
        return ""

    @abstractmethod
    def source_images(self) -> Tensor:
        """Clean images of the training domain, [N, 3, H, W] in [0, 1]."""

    def source_labels(self) -> np.ndarray | None:
        """Labels of the source images, if they are known: for warnings alone, no method sees them."""
        return None

    @abstractmethod
    def test_labels(self) -> np.ndarray:
        """Labels of all test images."""

    @abstractmethod
    def test_images(self, domain: Domain, index: np.ndarray) -> Tensor:
        """The test images at `index` under `domain`, [len(index), 3, H, W] in [0, 1]."""

    def own_domains(self) -> tuple[str, ...]:
        """Names of domains that are no corruptions: they have severity 0, as `clean` has."""
        return ()

    def classes(self) -> np.ndarray | None:
        """The model's classes that labels count, if not all: the model is cut down to these."""
        return None

    def note(self) -> str:
        """What a reader of the numbers must know of these images; every cell's record carries it."""
        return ""

    def domain_note(self, domain: Domain) -> str:
        """What a reader must know of the images of one domain besides; cells that show it carry it."""
        return ""

    def prepare(self, domain: Domain, count: int) -> None:
        """Make the first `count` images of a domain ready, so that reading them later is cheap."""

    def problems(self, domains: Sequence[Domain]) -> list[str]:
        """What keeps these domains from being read here: problem and remedy, one sentence each."""
        return []


@dataclass(frozen=True)
class Stream:
    """Rounds × domains × batches with one seed; no method can move its order."""

    domains: tuple[Domain, ...]
    rounds: int
    batch_size: int
    count: int
    order: str
    seed: int

    def index(self, round: int, domain: Domain) -> np.ndarray:
        """Test-image indices of one domain in the order in which they arrive."""
        if self.order == "sequential":
            return np.arange(self.count)
        turn = round if self.order == "reshuffled" else 0
        words = hashlib.sha256(f"{self.seed}/{turn}/{domain}".encode()).digest()
        return np.random.default_rng(np.frombuffer(words, np.uint32)).permutation(self.count)

    def batches(self, round: int, domain: Domain) -> list[np.ndarray]:
        """The index, cut into batches; a partial last batch is kept."""
        index = self.index(round, domain)
        return [index[i : i + self.batch_size] for i in range(0, self.count, self.batch_size)]

    def fingerprint(self, round: int, domain: Domain, data_fingerprint: str) -> str:
        """SHA-256 (first 16 digits) over the images and the order of one domain."""
        digest = hashlib.sha256(f"{data_fingerprint}/{domain}/{self.batch_size}/".encode())
        digest.update(self.index(round, domain).astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    @property
    def fixed_batches(self) -> bool:
        """Whether every round brings the same batches."""
        return self.order != "reshuffled"


CorruptionFunction = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]


def __getattr__(name: str) -> Any:
    """A base class of our own plugins; see `tta_bench.bases`."""
    if name not in BASES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(BASES[name]), name)


__all__ = [
    "BitRange",
    "BitWidth",
    "Bits",
    "BlockwiseQuantizer",
    "Calibration",
    "Choice",
    "Corruptible",
    "CorruptionFunction",
    "Count",
    "CountOrZero",
    "Data",
    "Domain",
    "Fraction",
    "Ge",
    "Gt",
    "Interval",
    "Le",
    "Log",
    "Lt",
    "Method",
    "Model",
    "ModelSource",
    "Momentum",
    "NonNegative",
    "Norm",
    "Once",
    "Passes",
    "Positive",
    "Progress",
    "Quantizer",
    "ResNetModel",
    "Seed",
    "Source",
    "Spaces",
    "Split",
    "Stream",
    "Target",
    "TimmModel",
    "Uniform",
    "View",
    "VimModel",
    "VitModel",
    "dataclass",
    "field",
    "spaces",
]
