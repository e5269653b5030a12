"""Peak live tensor bytes of whatever runs inside a `ByteCounter`, on real and on fake tensors alike."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

BLOCK_BYTES = 512  # the granularity of CUDA's caching allocator


class ByteCounter(TorchDispatchMode):
    """Adds a storage when an operation first touches it, drops it when its last tensor dies.

    Counting storages, not tensors, makes views and in-place operations free, as they are. What a
    kernel allocates for itself and frees before it returns is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes = 0
        self.peak_bytes = 0
        self.operations = 0
        self._live: dict[int, tuple[weakref.ref, int]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        self.operations += 1
        self.watch(tensors_in(args))
        self.watch(tensors_in(kwargs.values()))
        result = func(*args, **kwargs)
        self.watch(tensors_in((result,)))
        return result

    def watch(self, tensors: Iterable[Tensor]) -> None:
        """Count these from now on."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if id(storage) not in self._live:  # a storage keeps one Python object for life
                self._add(id(storage), storage)

    def restart(self) -> None:
        """Forget peak and operations so far: the next peak starts from what is live now."""
        self.peak_bytes, self.operations = self.live_bytes, 0

    def sizes_except(self, tensors: Iterable[Tensor]) -> list[int]:
        """Exact sizes of the live storages that none of these tensors uses."""
        known = {id(tensor.untyped_storage()) for tensor in tensors}
        return [size for key, (_, size) in self._live.items() if key not in known]

    def _add(self, key: int, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        self._live[key] = (weakref.ref(storage, lambda _: self._drop(key)), size)
        self.live_bytes += in_blocks(size)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _drop(self, key: int) -> None:
        self.live_bytes -= in_blocks(self._live.pop(key)[1])


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among an operation's arguments or results; lists and tuples are looked into."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def in_blocks(size: int) -> int:
    """`size` rounded up to whole allocator blocks."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes, in blocks, of all storages under `tensors`, each counted once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({id(storage): in_blocks(storage.nbytes()) for storage in storages}.values())
