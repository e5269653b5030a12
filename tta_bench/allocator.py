"""Memory that stays with the process: what one pass frees, the next one takes."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # names and numbers of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Let the C library keep what is freed; tell whether it can.

    By default it returns large blocks to the system and fetches them anew, page by page, for the next
    layer's tensors: on a virtual machine that took a third of a quantised transformer's pass.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))
