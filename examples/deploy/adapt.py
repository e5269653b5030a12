"""ZOA's step and the activation shift on an exported transformer, with NumPy and ONNX Runtime only.

README.md shows how to run it. The method is `zoa` of tta-bench without its bank (`bank_size: 0`).
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
import onnxruntime

LR, DECAY, C, LAM, TAU, SEED = 1e-3, 0.4, 0.02, 30.0, 0.1, 2020
F = np.float32


class Network:
    """The sessions of an exported transformer, and the parameters of its norm layers."""

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / "network.json").read_text())
        self.norms, self.depth = facts["norms"], len(facts["blocks"])
        self.sessions = {name: started(folder / f"{name}.onnx") for name in facts["files"]}
        self.parameters = dict(np.load(folder / "parameters.npz"))

    def run(self, name: str, x: np.ndarray, prefix: str = "") -> np.ndarray:
        """The output of a graph; the norms of a block are further inputs."""
        taken = self.parameters.items() if prefix else ()
        feeds = {key.removeprefix(prefix): value for key, value in taken if key.startswith(prefix)}
        return self.sessions[name].run(None, {"input": x, **feeds})[0]

    def block(self, index: int, hidden: np.ndarray) -> np.ndarray:
        """The hidden state after a block."""
        return self.run(f"block_{index:02d}", hidden, f"blocks.{index}.")

    def probe(self, index: int, hidden: np.ndarray) -> np.ndarray:
        """The class token after a block, as the next norm sees it."""
        name = "norm" if index == self.depth - 1 else f"blocks.{index + 1}.norm1"
        epsilon = next(norm["epsilon"] for norm in self.norms if norm["name"] == name)
        x = hidden[:, 0]
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + F(epsilon))
        return x * self.parameters[f"{name}.weight"] + self.parameters[f"{name}.bias"]

    def layers(self, hidden: np.ndarray, start: int) -> list[np.ndarray]:
        """The layer features from the one before block `start` on; the last one is z."""
        found = [self.probe(start - 1, hidden)]
        for index in range(start, self.depth):
            hidden = self.block(index, hidden)
            found.append(self.probe(index, hidden))
        return found

    def head(self, z: np.ndarray) -> np.ndarray:
        """Logits."""
        return self.run("head", z[:, None])[:, 0]


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
        layers = network.layers(self.prefix(network.run("stem", clean)), self.start)
        self.means, self.stds = [z.mean(0) for z in layers], [z.std(0, ddof=1) for z in layers]
        self.epsilon, self.first_batch = np.zeros_like(self.theta0), 0
        self.domain = self.history = None

    def prefix(self, hidden: np.ndarray) -> np.ndarray:
        """The hidden state behind the frozen blocks, which both passes have in common."""
        for index in range(self.start):
            hidden = self.net.block(index, hidden)
        return hidden

    def write(self, epsilon: np.ndarray) -> None:
        """θ ← θ⁰ + ε."""
        parts = np.split(self.theta0 + epsilon, np.cumsum(self.sizes)[:-1])
        self.net.parameters.update(zip(self.names, parts, strict=True))

    def loss(self, hidden: np.ndarray, epsilon: np.ndarray) -> tuple[float, np.ndarray]:
        """Entropy plus the distance of layer statistics from the clean ones; and z."""
        self.write(epsilon)
        layers = self.net.layers(hidden, self.start)
        pairs = zip(layers, self.means, self.stds, strict=True)
        gaps = [((z.std(0, ddof=1) - s) ** 2 + (z.mean(0) - m) ** 2).mean() for z, m, s in pairs]
        logits = self.net.head(layers[-1])
        logp = logits - logits.max(1, keepdims=True)
        logp -= np.log(np.exp(logp).sum(1, keepdims=True))
        return float(-(np.exp(logp) * logp).sum(1).mean() + F(LAM) * np.mean(gaps)), layers[-1]

    def changed(self, tokens: np.ndarray) -> bool:
        """Whether the statistics of the stem are those of another domain."""
        self.first_batch = self.first_batch or len(tokens)
        samples = tokens[:, 1:].reshape(-1, tokens.shape[2])
        a, b = self.domain, np.stack([samples.mean(0), samples.var(0, ddof=1)])
        if len(tokens) < self.first_batch:
            return False
        if a is not None:
            gap = (a[0] - b[0]) ** 2
            if ((a[1] + gap) / (2 * b[1]) + (b[1] + gap) / (2 * a[1]) - 1).mean() <= TAU:
                self.domain = F(0.2) * b + F(0.8) * a
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
        hidden = self.prefix(tokens)
        if self.changed(tokens):
            self.history = None
        loss, z = self.loss(hidden, self.epsilon)
        output = self.net.head(z if self.history is None else z + (self.means[-1] - self.history))
        e, _ = self.draw(len(self.epsilon)), self.draw(1)  # the second is for the weights of the bank
        rise = self.loss(hidden, self.epsilon + F(C) * e)[0] - loss
        if math.isfinite(rise):
            self.epsilon = self.epsilon - F(LR) * (F(rise / C) / e + F(DECAY) * self.epsilon)
        self.write(self.epsilon)
        mean = z.mean(0)
        self.history = mean if self.history is None else self.history + F(0.1) * (mean - self.history)
        return output


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print the predicted class of every image.")
    for argument in ("network", "clean", "stream"):
        parser.add_argument(argument, type=Path)
    given = parser.parse_args()
    adapter = ZeroOrderAdapter(Network(given.network), np.load(given.clean))
    for batch in np.array_split(stream := np.load(given.stream), range(64, len(stream), 64)):
        print(*adapter.step(batch).argmax(1), sep="\n")
