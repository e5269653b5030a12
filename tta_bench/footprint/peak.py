"""Peak live tensor bytes of the code inside a `ByteCounter`, for real and fake tensors."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

BLOCK_BYTES = 512  # the granularity of CUDA's caching allocator


class ByteCounter(TorchDispatchMode):
    """Counts a storage from the first operation that uses it until its last tensor is freed.

    Storages are counted, not tensors, so views and in-place operations cost nothing. Memory that a kernel
    allocates and frees internally is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes = 0
        self.peak_bytes = 0
        self.operations = 0
        self._live: dict[int, tuple[weakref.ref, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.operations += 1
        self.watch(tensors_in(args))
        self.watch(tensors_in(kwargs.values()))
        result = func(*args, **kwargs)
        self.watch(tensors_in((result,)))
        return result

    def watch(self, tensors: Iterable[Tensor]) -> None:
        """Count the storages of these tensors from now on."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if id(storage) not in self._live:  # a storage keeps one Python object for life
                self._add(id(storage), storage)

    def restart(self) -> None:
        """Reset the peak to the bytes that are live now, and the number of operations to 0."""
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
    """The tensors among an operation's arguments or results, also inside lists and tuples."""
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
