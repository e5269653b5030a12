"""ZOA's step and the activation shift on an exported transformer, with NumPy and ONNX Runtime only.

README.md shows how to run it. The method is `zoa` of tta-bench without its bank (`bank_size: 0`). Like
there, parameters are float32, and losses and statistics of features are computed in float64.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import onnxruntime

LR, DECAY, C, LAM, TAU, SEED, BATCH = 1e-3, 0.4, 0.02, 30.0, 0.1, 2020, 64
F = np.float32
Hidden = tuple[np.ndarray, list[np.ndarray]]  # tokens, and the layer features up to there


class Network:
    """The sessions of an exported transformer, and the parameters of its norm layers."""

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "network.json").read_text())
        self.norms, self.depth = facts["norms"], len(facts["blocks"])
        self.inputs = {name: set(graph["inputs"]) - {"input"} for name, graph in facts["files"].items()}
        self.sessions = {name: started(folder / f"{name}.onnx") for name in facts["files"]}
        self.parameters = dict(np.load(folder / "parameters.npz"))

    def run(self, name: str, x: np.ndarray, prefix: str = "") -> np.ndarray:
        """The output of a graph; its further inputs are parameters of norms."""
        feeds = {key: self.parameters[prefix + key] for key in self.inputs[name]}
        return self.sessions[name].run(None, {"input": x, **feeds})[0]

    def probe(self, index: int, hidden: np.ndarray) -> np.ndarray:
        """The class token after a block, as the next norm sees it."""
        norm = "norm." if index == self.depth - 1 else f"blocks.{index + 1}.norm1."
        return self.run(f"probe_{index:02d}", np.ascontiguousarray(hidden[:, 0]), norm)

    def blocks(self, hidden: np.ndarray, start: int, end: int) -> Hidden:
        """The hidden state after blocks[start:end], and the layer feature after each of them."""
        found = []
        for index in range(start, end):
            hidden = self.run(f"block_{index:02d}", hidden, f"blocks.{index}.")
            found.append(self.probe(index, hidden))
        return hidden, found


def started(path: Path) -> onnxruntime.InferenceSession:
    """A session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class ZeroOrderAdapter:
    """Norm parameters θ⁰ + ε of the middle blocks, with ε learnt from two forward passes per batch."""

    def __init__(self, network: Network, clean: np.ndarray) -> None:
        self.net, self.rng = network, np.random.RandomState(SEED)
        self.start, end = math.ceil(network.depth / 12), network.depth - network.depth // 4
        norms = [norm["name"] for norm in network.norms if self.start <= norm["block"] < end]
        self.names = [f"{name}.{part}" for name in norms for part in ("weight", "bias")]
        self.sizes = [network.parameters[name].size for name in self.names]
        self.theta0 = np.concatenate([network.parameters[name] for name in self.names])
        rows = [network.blocks(network.run("stem", x), 0, network.depth)[1] for x in batches(clean)]
        layers = [np.concatenate(parts).astype(float) for parts in zip(*rows, strict=True)]
        self.clean = [(z.mean(0).astype(F), z.std(0, ddof=1).astype(F)) for z in layers]
        self.epsilon, self.first_batch = np.zeros_like(self.theta0), 0
        self.domain = self.history = None

    def loss(self, frozen: Hidden, epsilon: np.ndarray) -> tuple[float, np.ndarray]:
        """At θ⁰ + ε: entropy plus the distance of layer statistics from the clean ones; and z."""
        parts = np.split(self.theta0 + epsilon, np.cumsum(self.sizes)[:-1])
        self.net.parameters.update(zip(self.names, parts, strict=True))
        hidden, early = frozen
        border = self.net.probe(self.start - 1, hidden)  # through an adapted norm
        layers = [*early[:-1], border, *self.net.blocks(hidden, self.start, self.net.depth)[1]]
        pairs = zip([z.astype(float) for z in layers], self.clean, strict=True)
        gaps = [((z.std(0, ddof=1) - s) ** 2 + (z.mean(0) - m) ** 2).mean() for z, (m, s) in pairs]
        logits = self.net.run("head", layers[-1][:, None])[:, 0].astype(float)
        logp = logits - logits.max(1, keepdims=True)
        logp -= np.log(np.exp(logp).sum(1, keepdims=True))
        return float(-(np.exp(logp) * logp).sum(1).mean() + LAM * np.mean(gaps)), layers[-1]

    def changed(self, tokens: np.ndarray) -> bool:
        """Whether the statistics of the stem are those of another domain."""
        self.first_batch = self.first_batch or len(tokens)
        samples = tokens[:, 1:].reshape(-1, tokens.shape[2]).astype(float)
        a, b = self.domain, np.stack([samples.mean(0), np.maximum(samples.var(0, ddof=1), 1e-12)])
        if len(tokens) < self.first_batch or not np.isfinite(b).all():
            return False
        if a is not None:
            gap = (a[0] - b[0]) ** 2
            if ((a[1] + gap) / (2 * b[1]) + (b[1] + gap) / (2 * a[1]) - 1).mean() <= TAU:
                self.domain = 0.2 * b + 0.8 * a
                return False
        self.domain = b
        return a is not None

    def draw(self, count: int) -> np.ndarray:
        """Random signs times U(0.5, 1), with the numbers of torch.rand: 24 bits of the Mersenne twister."""
        bits = self.rng.randint(0, 2**32, 2 * count, np.uint32) & 0xFFFFFF
        magnitude, sign = np.split(bits.astype(F) * F(2**-24), 2)
        return np.copysign(magnitude / 2 + F(0.5), sign - F(0.5))

    def step(self, images: np.ndarray) -> np.ndarray:
        """Logits of a batch; adapts to it."""
        tokens = self.net.run("stem", images)
        frozen = self.net.blocks(tokens, 0, self.start)  # which both passes have in common
        if self.changed(tokens):
            self.history = None
        loss, z = self.loss(frozen, self.epsilon)
        moved = z if self.history is None else (z + (self.clean[-1][0] - self.history)).astype(F)
        if math.isfinite(loss):
            self.learn(frozen, loss)
        mean = z.astype(float).mean(0)
        old = mean if self.history is None else self.history
        if np.isfinite(mean).all():
            self.history = old + 0.1 * (mean - old)
        return self.net.run("head", moved[:, None])[:, 0]

    def learn(self, frozen: Hidden, loss: float) -> None:
        """Change ε by the slope of the loss along one perturbation."""
        e, _ = self.draw(len(self.epsilon)), self.draw(1)  # the second is for the weights of the bank
        rise = self.loss(frozen, self.epsilon + F(C) * e)[0] - loss
        if math.isfinite(rise):
            slope = F(rise / C) * (F(1) / e)
            self.epsilon = self.epsilon - F(LR) * (slope + F(DECAY) * self.epsilon)


def batches(images: np.ndarray) -> list[np.ndarray]:
    """The images in batches; the last one may be smaller."""
    return np.array_split(images, range(BATCH, len(images), BATCH))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the predicted class of every image.")
    for argument in ("network", "clean", "stream"):
        parser.add_argument(argument, type=Path)
    given = parser.parse_args()
    adapter = ZeroOrderAdapter(Network(given.network), np.load(given.clean))
    for batch in batches(np.load(given.stream)):
        print(*adapter.step(batch).argmax(1), sep="\n")
