"""The ten orders of ImageNet-C's corruptions that CoTTA (Wang et al., CVPR 2022) averages over."""

from __future__ import annotations

from collections.abc import Sequence

from tta_bench.corruptions.sets import IMAGENET_C_15

# By the first two letters of each corruption, which tell all 15 apart.
_ORDERS = (
    "br pi ga mo zo gl im jp de el sh fr sn fo co",
    "jp sh zo fr co fo de el ga br gl im pi sn mo",
    "co de ga sh sn fr gl zo el jp pi br im mo fo",
    "sh fo gl pi sn el br im de fr co ga mo jp zo",
    "pi gl zo sn fo im br mo fr jp ga sh co de el",
    "mo sn fo sh de co zo br fr el gl ga pi jp im",
    "fr im jp co zo gl pi sn de mo br el sh fo ga",
    "gl zo im fo sn jp ga fr sh br co mo pi de el",
    "de mo zo sh ga gl jp fo co pi fr sn br el im",
    "co ga de zo fr gl jp fo pi el sh im sn mo br",
)
_NAMES = {name[:2]: name for name in IMAGENET_C_15}
COTTA_ORDERS: tuple[tuple[str, ...], ...] = tuple(
    tuple(_NAMES[letters] for letters in order.split()) for order in _ORDERS
)


def cotta_problem(names: Sequence[str], numbers: Sequence[int]) -> str | None:
    """Why these corruptions do not have these orders, and the remedy."""
    if unknown := [name for name in names if name not in IMAGENET_C_15]:
        return (
            f"CoTTA's orders are of ImageNet-C's 15 corruptions, and {unknown[0]} is none of them. "
            "Remove it, or choose another domain order."
        )
    different = distinct_orders(names, numbers)
    if len(different) == len(set(numbers)):
        return None
    return (
        f"some of CoTTA's orders are the same for these {len(names)} corruptions. Use more corruptions, or "
        f"orders that differ: {', '.join(f'{{cotta: {number}}}' for number in different)}."
    )


def distinct_orders(names: Sequence[str], numbers: Sequence[int]) -> list[int]:
    """The numbers without those whose order of these corruptions is that of a number before."""
    found: dict[tuple[int, ...], int] = {}
    for number in numbers:
        found.setdefault(tuple(cotta_places(names, number)), number)
    return list(found.values())


def cotta_places(names: Sequence[str], number: int) -> list[int]:
    """The places of these corruptions in `names`, in the order of this number (0 to 9)."""
    order = COTTA_ORDERS[number]
    return sorted(range(len(names)), key=lambda place: order.index(names[place]))
