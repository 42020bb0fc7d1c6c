"""Launch order of a listing, whose rows only say how often a kernel is launched."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

Slot = list[int]
"""A place in the launch order: the row that stands there, launch by launch."""
_VARYING: Final = ("count", "kv_len")


class Loop(NamedTuple):
    """A run of launches: the kernels of one turn in order, and the number of turns."""

    kernels: tuple[int, ...]
    turns: int


def listing_order(kernels: Sequence[dict], first: int = 0) -> list[Loop]:
    """Loops of the rows `kernels` of a listing, whose first row has number `first`.

    Rows that differ in nothing but their KV length are one place of the layer, which
    they take one after another as a generation goes on.
    """
    keys = [
        tuple(sorted((k, str(v)) for k, v in kernel.items() if k not in _VARYING))
        if "kv_len" in kernel
        else i
        for i, kernel in enumerate(kernels)
    ]
    return loops_of([round(kernel["count"]) for kernel in kernels], keys, first)


def loops_of(
    counts: Sequence[int], keys: Sequence[Hashable] | None = None, first: int = 0
) -> list[Loop]:
    """Loops of rows that are launched `counts` times; rows that share one of `keys`
    (None: all differ) share a place.

    Places whose count is the commonest one above 1 are the body of a layer; one that is
    taken m times as often stands m times in the body, evenly spread. Launches that fill
    no whole turn come behind the body, other places before or behind it, as listed.
    Passes follow each other layer by layer, so that the few launches between two passes
    come once, not after every pass. `first` is the number of the first row.

    Example:

    >>> loops_of([1, 8, 8, 16, 1])
    [Loop(kernels=(0,), turns=1), Loop(kernels=(1, 3, 2, 3), turns=8), \
Loop(kernels=(4,), turns=1)]
    """
    slots: dict[Hashable, Slot] = {}
    for i, count in enumerate(counts):
        slot = slots.setdefault(i if keys is None else keys[i], [])
        slot += [first + i] * count
    places = list(slots.values())
    totals = [len(slot) for slot in places]
    repeated = Counter(total for total in totals if total > 1)
    turns = max(repeated, key=lambda c: (repeated[c], c)) if repeated else 0
    inside = [i for i, total in enumerate(totals) if turns and total >= turns]
    loops: list[Loop] = []
    for i, slot in enumerate(places):
        if i in inside[:1]:
            body = _body([(places[j], totals[j] // turns) for j in inside])
            loops += _turned(body, turns)
        rest = totals[i] % turns if i in inside else totals[i]
        if rest:
            loops += _turned([slot[-rest:]], rest)
    return _joined(loops)


def _body(slots: Sequence[tuple[Slot, int]]) -> list[Slot]:
    """Kernels of one turn in order; `slots` have the number of their launches in it."""
    whole = [slot for slot, times in slots if times == 1]
    places = [(float(i), slot) for i, slot in enumerate(whole)]
    for slot, times in slots:
        if times > 1:
            step = len(whole) / times
            places += [((j + 1) * step - 0.5, slot) for j in range(times)]
    return [slot for _, slot in sorted(places, key=lambda place: place[0])]


def _turned(body: Sequence[Slot], turns: int) -> list[Loop]:
    """`turns` turns of a body, cut where a slot goes on to its next row."""
    launches = {id(slot): iter(slot) for slot in body}
    loops: list[Loop] = []
    for _ in range(turns):
        kernels = tuple(next(launches[id(slot)]) for slot in body)
        if loops and loops[-1].kernels == kernels:
            loops[-1] = Loop(kernels, loops[-1].turns + 1)
        else:
            loops.append(Loop(kernels, 1))
    return loops


def _joined(loops: Sequence[Loop]) -> list[Loop]:
    """Neighbours that are launched once, as one."""
    joined: list[Loop] = []
    for loop in loops:
        if joined and joined[-1].turns == loop.turns == 1:
            joined[-1] = Loop(joined[-1].kernels + loop.kernels, 1)
        else:
            joined.append(loop)
    return joined
