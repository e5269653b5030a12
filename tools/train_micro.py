"""Train one embedded network on CIFAR-10's training images, on the CPU.

    python tools/train_micro.py resnet --cifar10 package --epochs 30 --output resnet-micro.safetensors
    python tools/train_micro.py vit --teacher resnet-micro.safetensors …

Shift and flip, and cutout if asked for. The learning rate rises linearly and then falls linearly to zero:
over --epochs, or over --minutes of wall time, which end on time on a shared machine. With --teacher, the loss
is a mean of cross-entropy and the divergence from the teacher's softened prediction (Hinton et al., 2015).
--hold-out N keeps the last N training images for choices. The accuracy on the test images is printed once,
at the end.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from cifar10 import load_test, load_train
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tta_bench.models import micro

MEAN, STD = 0.5, 0.5
# lr, weight decay; SGD for the ResNet, AdamW or Muon for the others
RECIPES = {"resnet": (0.4, 5e-4), "vit": (2e-3, 0.05), "vim": (3e-3, 0.05)}
Images = tuple[Tensor, Tensor]


def to_tensor(images: np.ndarray) -> Tensor:
    return torch.from_numpy(images.copy()).permute(0, 3, 1, 2).contiguous()


def normalise(images: Tensor) -> Tensor:
    return (images.float() / 255 - MEAN) / STD


def augment(images: Tensor, rng: torch.Generator, cutout: int) -> Tensor:
    """Random shift by up to 4 pixels, flip, and one grey square; one draw per image."""
    n = len(images)
    padded = F.pad(images, (4, 4, 4, 4))
    dy, dx = torch.randint(0, 9, (2, n, 1, 1), generator=rng)
    rows = torch.arange(32).view(1, 32, 1) + dy
    cols = torch.arange(32).view(1, 1, 32) + dx
    flip = torch.rand(n, 1, 1, generator=rng) < 0.5
    cols = torch.where(flip, cols.flip(2), cols)
    out = padded.permute(0, 2, 3, 1)[torch.arange(n).view(n, 1, 1), rows, cols].permute(0, 3, 1, 2)
    if cutout:
        cy, cx = torch.randint(0, 32, (2, n, 1, 1), generator=rng)
        inside = (torch.arange(32).view(1, 32, 1) - cy).abs() < cutout // 2
        inside = inside & ((torch.arange(32).view(1, 1, 32) - cx).abs() < cutout // 2)
        out = out.masked_fill(inside.unsqueeze(1), 127)
    return out.contiguous()


def loss_of(logits: Tensor, labels: Tensor, soft: Tensor | None, temperature: float = 3.0) -> Tensor:
    hard = F.cross_entropy(logits, labels, label_smoothing=0.1 if soft is None else 0.0)
    if soft is None:
        return hard
    student = F.log_softmax(logits / temperature, 1)
    divergence = F.kl_div(student, F.softmax(soft / temperature, 1), reduction="batchmean")
    return 0.3 * hard + 0.7 * temperature**2 * divergence


@torch.no_grad()
def accuracy(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    net.eval()
    hits = [
        (net(normalise(x)).argmax(1) == y).sum().item()
        for x, y in zip(images.split(500), labels.split(500), strict=True)
    ]
    return 100 * sum(hits) / len(images)


def optimizers_for(args: argparse.Namespace, net: nn.Module) -> list[torch.optim.Optimizer]:
    """The optimizers that together update all parameters; Muon takes the matrices inside the blocks only."""
    lr, decay = args.lr or RECIPES[args.model][0], RECIPES[args.model][1]
    named = dict(net.named_parameters())
    hidden = [n for n, p in named.items() if args.muon and p.ndim == 2 and ("blocks" in n or "proj" in n)]
    others = [n for n in named if n not in hidden]
    groups = [
        {"params": [named[n] for n in others if named[n].ndim > 1], "weight_decay": decay},
        {"params": [named[n] for n in others if named[n].ndim <= 1], "weight_decay": 0.0},
    ]
    if args.model == "resnet":
        return [torch.optim.SGD(groups, lr, momentum=0.9, nesterov=True)]
    rest: list[torch.optim.Optimizer] = [torch.optim.AdamW(groups, lr)]
    if hidden:
        matrices = [named[n] for n in hidden]
        rest.append(torch.optim.Muon(matrices, lr, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
    return rest


class RateSchedule:
    """Linear warm-up and linear decay to zero over the steps or the minutes of a run."""

    def __init__(self, args: argparse.Namespace, optimizers: list[torch.optim.Optimizer], steps: int) -> None:
        self.minutes, self.steps, self.warmup = args.minutes, steps, args.warmup
        self.groups = [(g, g["lr"]) for o in optimizers for g in o.param_groups]
        self.start, self.step = time.time(), 0

    def progress(self) -> float:
        if self.minutes:
            return (time.time() - self.start) / (60 * self.minutes)
        return self.step / self.steps

    def advance(self) -> bool:
        """Set the learning rates of the next step; False when the run is over."""
        done = self.progress()
        factor = min(done / self.warmup, (1 - done) / (1 - self.warmup))
        for group, peak in self.groups:
            group["lr"] = peak * max(factor, 1e-3)
        self.step += 1
        return done < 1


def load_teacher(path: Path | None) -> nn.Module | None:
    if path is None:
        return None
    teacher = micro.build_resnet().to(memory_format=torch.channels_last).eval()
    teacher.load_state_dict(load_file(path))
    return teacher


@torch.no_grad()
def soft_targets(teacher: nn.Module | None, x: Tensor) -> Tensor | None:
    if teacher is None:
        return None
    with torch.autocast("cpu", torch.bfloat16):  # half the time; the student sees rounded logits
        return teacher(x.contiguous(memory_format=torch.channels_last)).float()


def build(args: argparse.Namespace) -> Any:
    net: Any = micro.BUILDERS[args.model]()
    if args.model == "resnet":
        net = net.to(memory_format=torch.channels_last)
    if args.init:
        net.load_state_dict(load_file(args.init))
    return net


def compiled(args: argparse.Namespace, net: Any) -> Any:
    """The network as trained: with --compile a compiled view of the same parameters."""
    if not args.compile:
        return net
    if args.model == "vit":
        return torch.compile(net)
    for block in net.layers:
        block.compile()  # in place: parameter names stay
    return net


def train(args: argparse.Namespace) -> None:
    """Train, save the weights after every epoch, and print the accuracies."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    images, labels = tensors(load_train(args.cifar10))
    kept = len(images) - args.hold_out
    net, teacher = build(args), load_teacher(args.teacher)
    optimizers = optimizers_for(args, net)
    schedule = RateSchedule(args, optimizers, args.epochs * (kept // args.batch_size))
    trainer = Trainer(args, net, teacher, optimizers, schedule)
    epoch, running = 0, True
    while running and (args.minutes or epoch < args.epochs):
        start, epoch = time.time(), epoch + 1
        running, loss = trainer.epoch(images[:kept], labels[:kept])
        shown = f" held out {accuracy(net, images[kept:], labels[kept:]):.2f} %," if args.hold_out else ""
        done, seconds = 100 * schedule.progress(), time.time() - start
        print(f"epoch {epoch}: loss {loss:.3f},{shown} {seconds:.0f} s, {done:.0f} % done", flush=True)
        save(net, args.output, epoch)
    print(f"{schedule.step} steps: test {accuracy(net, *tensors(load_test(args.cifar10))):.2f} %", flush=True)


def tensors(split: tuple[np.ndarray, np.ndarray]) -> Images:
    return to_tensor(split[0]), torch.from_numpy(split[1])


@dataclass
class Trainer:
    """A network with what updates it."""

    args: argparse.Namespace
    net: Any
    teacher: nn.Module | None
    optimizers: list[torch.optim.Optimizer]
    schedule: RateSchedule

    def __post_init__(self) -> None:
        self.rng = torch.Generator().manual_seed(self.args.seed)
        self.fast = compiled(self.args, self.net)

    def epoch(self, images: Tensor, labels: Tensor) -> tuple[bool, float]:
        """Pass over all images once: whether the schedule goes on, and the mean loss."""
        losses: list[float] = []
        self.net.train()
        size = self.args.batch_size
        for index in torch.randperm(len(images), generator=self.rng).split(size)[: len(images) // size]:
            if not self.schedule.advance():
                return False, float(np.mean(losses or [np.nan]))
            losses.append(self.step(images[index], labels[index]))
        return True, float(np.mean(losses))

    def step(self, images: Tensor, labels: Tensor) -> float:
        """One update; returns the loss."""
        x = normalise(augment(images, self.rng, self.args.cutout))
        loss = loss_of(self.fast(x), labels, soft_targets(self.teacher, x))
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0 if self.args.model != "resnet" else 5.0)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item()


def save(net: nn.Module, path: Path, epoch: int) -> None:
    state = {name: value.contiguous() for name, value in net.state_dict().items()}
    save_file(state, path, metadata={"trained_by": "tools/train_micro.py", "epochs": str(epoch)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", choices=sorted(micro.BUILDERS))
    parser.add_argument("--cifar10", type=Path, required=True, help="folder of the unpacked sheets")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--teacher", type=Path, help="a trained resnet-micro to distil from")
    parser.add_argument("--init", type=Path, help="go on from these weights")
    parser.add_argument("--lr", type=float, help="peak learning rate; default: the model's own")
    parser.add_argument("--muon", action="store_true", help="update the matrices inside the blocks by Muon")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument(
        "--minutes", type=float, help="length of the schedule in wall time, instead of epochs"
    )
    parser.add_argument("--warmup", type=float, default=0.05, help="share of the schedule with a rising rate")
    parser.add_argument("--hold-out", type=int, default=0, help="training images kept for choices")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--cutout", type=int, default=8, help="side of the grey square; 0: none")
    parser.add_argument("--compile", action="store_true", help="compile vit and vim (needs a C++ compiler)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
