"""Train one embedded network on all 50 000 CIFAR-10 training images, on the CPU.

    python tools/train_micro.py resnet --cifar10 package --epochs 30 --output resnet-micro.safetensors
    python tools/train_micro.py vit --teacher resnet-micro.safetensors …

One-cycle schedule, pad-crop, flip and cutout; with --teacher, the loss is the mean of cross-entropy and the
divergence from the teacher's softened prediction (Hinton et al., 2015). Test accuracy is printed, never used.
"""

from __future__ import annotations

import argparse
import time
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
# lr, weight decay; SGD for the ResNet, AdamW for the others
RECIPES = {"resnet": (0.4, 5e-4), "vit": (2e-3, 0.05), "vim": (3e-3, 0.05)}


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


def optimizer_for(name: str, net: nn.Module) -> torch.optim.Optimizer:
    lr, decay = RECIPES[name]
    groups = [
        {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in net.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if name == "resnet":
        return torch.optim.SGD(groups, lr, momentum=0.9, nesterov=True)
    return torch.optim.AdamW(groups, lr)


def load_teacher(path: Path | None) -> nn.Module | None:
    if path is None:
        return None
    teacher = micro.build_resnet().to(memory_format=torch.channels_last).eval()
    teacher.load_state_dict(load_file(path))
    return teacher


def train(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rng = torch.Generator().manual_seed(args.seed)
    images, labels = (
        f(a) for f, a in zip((to_tensor, torch.from_numpy), load_train(args.cifar10), strict=True)
    )
    test_images, test_labels = load_test(args.cifar10)
    test = to_tensor(test_images), torch.from_numpy(test_labels)
    net: Any = micro.BUILDERS[args.model]()
    if args.model == "resnet":
        net = net.to(memory_format=torch.channels_last)
    if args.init:
        net.load_state_dict(load_file(args.init))
    if args.compile:
        for block in net.layers if args.model == "vim" else net.blocks:
            block.compile()  # in place: parameter names stay
    teacher = load_teacher(args.teacher)
    optimizer = optimizer_for(args.model, net)
    steps = len(images) // args.batch_size
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        args.lr or RECIPES[args.model][0],
        total_steps=args.epochs * steps,
        pct_start=0.05 if args.init else 0.2,
    )
    for epoch in range(args.epochs):
        start, total = time.time(), 0.0
        net.train()
        for index in torch.randperm(len(images), generator=rng).split(args.batch_size)[:steps]:
            x = normalise(augment(images[index], rng, args.cutout))
            soft = None
            if teacher is not None:
                with torch.no_grad():
                    soft = teacher(x.contiguous(memory_format=torch.channels_last))
            loss = loss_of(net(x), labels[index], soft)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0 if args.model != "resnet" else 5.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        last = epoch == args.epochs - 1
        shown = f" test {accuracy(net, *test):.2f} %" if last or epoch % 5 == 4 else ""
        print(
            f"epoch {epoch + 1}: loss {total / steps:.3f}{shown}, {time.time() - start:.0f} s",
            flush=True,
        )
        state = {k: v.contiguous() for k, v in net.state_dict().items()}
        save_file(
            state,
            args.output,
            metadata={"trained_by": "tools/train_micro.py", "epochs": str(epoch + 1)},
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", choices=sorted(micro.BUILDERS))
    parser.add_argument("--cifar10", type=Path, required=True, help="folder of the unpacked sheets")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--teacher", type=Path, help="a trained resnet-micro to distil from")
    parser.add_argument("--init", type=Path, help="go on from these weights, with a short warm-up")
    parser.add_argument("--lr", type=float, help="peak learning rate; default: the model's own")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--cutout", type=int, default=8, help="side of the grey square; 0: none")
    parser.add_argument(
        "--compile", action="store_true", help="compile vit and vim blocks (needs a C++ compiler)"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
