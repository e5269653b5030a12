"""Why a worker has died, in words that its user can act on."""

from __future__ import annotations

import re

USED = re.compile(r"was ([\d.]+ ?[KMGT]?i?B / [\d.]+ ?[KMGT]?i?B)")


def in_short(death: Exception) -> str:
    """Ray's reason, without the processes of others that it lists when memory runs out."""
    text = str(death)
    if "low on memory" not in text:
        return text
    used = USED.search(text)
    amount = f" ({used[1]} used)" if used else ""
    return (
        f"Ray has killed the worker because its machine was low on memory{amount}. Use fewer --workers, or "
        "end other programs. RAY_memory_usage_threshold (0.95) is the limit; RAY_memory_monitor_refresh_ms=0 "
        "leaves it to the system."
    )
