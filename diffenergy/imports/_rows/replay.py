"""Rows of kernels that no operator launched (replayed CUDA graphs, Nsight reports) from
the listing of the model that ran.

Both have the same products, attention, experts and collectives in the same order, layer
by layer. A dynamic program aligns them by class; the tile in a product's name and its
grid tell products of one layer apart, and how many GPUs share the model.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...workload import LanguageModel, ModelShare, ModelSplit, load_model
from .._launches import Launch
from . import names
from .operators import Row, valid
from .sharing import collective_kind, expert_types

_MOST_ITEMS: Final = 400_000
"""Kernels that are aligned; later ones are twins of these."""
_FIRST_ITEMS: Final = 2_000
"""Kernels by which the number of GPUs that share the model is found."""
_DECODED: Final = 512
"""Tokens up to which engines replay whole decode steps: a token is a sequence."""
_RUNS: Final = ("moe", "attention", "conv")
"""Classes of which several kernels in a row are one row."""
_TILE: Final = re.compile(r"(?:_|tilesize)(\d{2,3})x(\d{1,3})(?=[_x])")
_TPS: Final = (1, 2, 4, 8, 16)
_MATCHED: Final = 2.0
"""Score of a kernel and a row of one class; skipped rows cost a half of it."""
DIMS: Final = ("tokens", "context", "tp")
"""Sizes that a user may state: tokens of a pass, tokens that attention reads of each
sequence, GPUs that share a layer."""


@dataclasses.dataclass(frozen=True)
class Replay:
    """Rows by number of the launch, the launch that carries the time of others, and
    what was assumed or disagrees."""

    rows: dict[int, Row]
    carriers: dict[int, int]
    notes: list[str]


@dataclasses.dataclass
class _Item:
    """Kernels in a row that are one row of a listing."""

    kind: str
    launches: list[int]


def is_replay(launches: Sequence[Launch]) -> bool:
    """Whether most of the time has no operator."""
    alone = sum(x.duration * x.times for x in launches if x.operator is None)
    return alone > 0.5 * sum(x.duration * x.times for x in launches)


def align(
    launches: Sequence[Launch], model: str, dims: Mapping[str, int], world: int
) -> Replay:
    """Rows of launches without an operator by the listing of a model."""
    if not any(x.grid for x in launches):
        note = (
            f"the file is one of sums: no order to align with the listing of {model}."
        )
        return Replay({}, {}, [note])
    tokens = dims.get("tokens") or _tokens(launches)
    if not tokens:
        note = f"{model}: no norm tells the tokens of a pass; give --dim tokens=N."
        return Replay({}, {}, [note])
    items = _items(launches)[:_MOST_ITEMS]
    notes, listings = [], {}
    for tp in _sizes(items, dims, world):
        if listing := _sequence(model, tokens, dims.get("context"), tp):
            listings[tp] = listing
    if not listings:
        note = f"{model} has no pass of {tokens:,} tokens; give --dim tokens=N."
        return Replay({}, {}, [note])
    steps_of = {tp: [x for x in rows if _kind(x)] for tp, rows in listings.items()}
    scores = {
        tp: _aligned(launches, items[:_FIRST_ITEMS], steps)[0]
        for tp, steps in steps_of.items()
    }
    likely = [tp for tp in scores if scores[tp] == max(scores.values())]
    if len(likely) > 1 and world not in likely:
        note = (
            f"no kernel's tile tells how many GPUs share {model}; give --dim tp=N "
            f"({' or '.join(map(str, sorted(likely)))})."
        )
        return Replay({}, {}, [note])
    tp = world if world in likely else likely[0]
    listing, steps = listings[tp], steps_of[tp]
    _, places = _aligned(launches, items, steps)
    is_known = dims.get("context") or tokens > _DECODED
    rows: dict[int, Row] = {}
    carriers: dict[int, int] = {}
    missed: Counter[str] = Counter()
    for item, place in zip(items, places, strict=True):
        first = max(item.launches, key=lambda i: launches[i].duration)
        if place < 0:
            missed[names.short_name(launches[first].name)] += 1
            continue
        row = _typed(steps[place], launches[first].name)
        is_read = item.kind != "attention" or is_known or not _is_language(model)
        if row is not None and is_read:
            rows[first] = row
            carriers |= dict.fromkeys(item.launches, first)
    rows |= _norms(launches, listing, tokens)
    shared = f" on {tp} GPUs" if tp > 1 else ""
    follow, listed = len(items) - missed.total(), f"{model}, {tokens:,} tokens a pass"
    notes.append(
        f"{listed}{shared}: {follow:,} of {len(items):,} matrix kernels and "
        "collectives follow its listing."
    )
    if missed:
        several = ", ".join(f"{n} x {name[:40]}" for name, n in missed.most_common(3))
        notes.append(f"the listing of {model} has no place for {several}.")
    if not is_known and _is_language(model):
        notes.append(
            "the lengths that attention reads are not in a trace; --dim context=N "
            "states them."
        )
    return Replay(rows, carriers, notes)


def _is_language(model: str) -> bool:
    return isinstance(load_model(model), LanguageModel)


def _kind(row: Row) -> str:
    """Class of a row that is aligned, "" of others."""
    from ...kernels import trace_class, trace_classes  # the kernel classes load JAX

    kind = trace_class(row["op"])
    is_matrix = kind in trace_classes() and trace_classes()[kind].matrix
    return kind if is_matrix or kind == "collective" else ""


def _tokens(launches: Sequence[Launch]) -> int:
    """Rows of most norms: a block each."""
    rows = Counter(
        x.grid[0]
        for x in launches
        if x.grid and "norm" in x.name.lower() and names.kernel_class(x.name) == "norm"
    )
    return rows.most_common(1)[0][0] if rows else 0


def _items(launches: Sequence[Launch]) -> list[_Item]:
    """Matrix kernels and collectives in order, the parts of one row together."""
    from ...kernels import trace_classes

    items: list[_Item] = []
    device = min((x.device for x in launches), default=0)  # others are its twins
    for i, launch in enumerate(launches):
        if launch.device != device:
            continue
        kind = names.kernel_class(launch.name)
        if kind not in trace_classes() or launch.operator is not None:
            continue
        if not (trace_classes()[kind].matrix or kind == "collective"):
            continue
        is_part = kind in _RUNS or "splitKreduce" in launch.name
        if items and items[-1].kind == kind and is_part:
            items[-1].launches.append(i)
        else:
            items.append(_Item(kind, [i]))
    return items


def _sizes(
    items: Sequence[_Item], dims: Mapping[str, int], world: int
) -> Sequence[int]:
    """Numbers of GPUs that may share the model, the likeliest first."""
    if dims.get("tp"):
        return [dims["tp"]]
    if all(item.kind != "collective" for item in items):
        return [1]
    return list(dict.fromkeys(([world] if world else []) + [*_TPS[1:], 1]))


def _sequence(
    model: str, tokens: int, context: int | None, tp: int
) -> tuple[Row, ...] | None:
    """Kernels of a pass in order; None where the model has no such pass."""
    loaded = load_model(model)
    if isinstance(loaded, LanguageModel):
        is_step = context is not None or tokens <= _DECODED
        choices: dict[str, Any] = (
            {"phase": "decode", "batch": tokens, "input_len": context or 1}
            if is_step
            else {"phase": "prefill", "batch": 1, "input_len": tokens}
        )
        try:
            part = loaded.placed(ModelShare(ModelSplit(tp=tp))) if tp > 1 else loaded
            return part.sequence(**choices)
        except ValueError:
            return None
    if tp > 1:
        return None
    one = loaded.sequence(batch=1, attention="flash")
    rows = next((int(x["rows"]) for x in one if x["op"].endswith("norm")), 1)
    if tokens % rows:
        return None
    return loaded.sequence(batch=tokens // rows, attention="flash")


def _aligned(
    launches: Sequence[Launch], items: Sequence[_Item], steps: Sequence[Row]
) -> tuple[float, list[int]]:
    """(score, row of each kernel or -1) of the best alignment.

    State: the last row that a kernel matched. A kernel matches a later row, which costs
    by the rows skipped, or none. Rows of equal counts are a block that may repeat.
    """
    cost = _costs(steps)
    kinds = [_kind(row) for row in steps]
    scores: dict[Any, np.ndarray] = {}
    best = np.zeros(len(steps))
    back = np.full((len(items), len(steps)), -1, np.int16)
    for i, item in enumerate(items):
        launch = launches[max(item.launches, key=lambda k: launches[k].duration)]
        key = (launch.name, launch.grid)
        if key not in scores:
            fits = [
                _fit(launch, row) if kind == item.kind else -np.inf
                for row, kind in zip(steps, kinds, strict=True)
            ]
            scores[key] = np.array(fits)
        through = best[:, None] - cost
        before = through.argmax(axis=0)
        reached = through[before, np.arange(len(steps))] + scores[key]
        taken = reached > best
        back[i] = np.where(taken, before, -1)
        best = np.where(taken, reached, best)
    places = [-1] * len(items)
    state = int(best.argmax())
    for i in range(len(items) - 1, -1, -1):
        if back[i, state] >= 0:
            places[i] = state
            state = int(back[i, state])
    return float(best.max()), places


def _costs(steps: Sequence[Row]) -> np.ndarray:
    """Cost of a step from one row to another: of the rows that it skips, forward, or
    to the next turn of a block of equal counts."""
    number = len(steps)
    block = np.cumsum(
        [i > 0 and x["count"] != steps[i - 1]["count"] for i, x in enumerate(steps)]
    )
    first = np.searchsorted(block, block, side="left")
    last = np.searchsorted(block, block, side="right") - 1
    there, to = np.indices((number, number))
    forward = to - there - 1
    around = (last[there] - there) + (to - first[to])
    repeated = np.array([x["count"] > 1 for x in steps])
    again = (block[there] == block[to]) & repeated[there]
    skipped = np.where(forward >= 0, forward, number)
    skipped = np.where(again, np.minimum(skipped, around), skipped)
    skipped = np.minimum(skipped, np.where(to == 0, number - 1 - there, number))
    return _MATCHED / 2 * np.minimum(skipped, 8)


def _fit(launch: Launch, row: Row) -> float:
    """Score of a kernel as a row of its class: higher where tile and grid agree."""
    score, kind = _MATCHED, row["op"]
    if kind == "collective":
        named = collective_kind(launch.name)
        alike = named is None or named in row["collective"]
        return score if alike else -np.inf
    if kind.endswith("attention") and "liding" in launch.name:
        return score + (1 if row["window_size"] else -1)
    tile = _TILE.search(launch.name)
    if kind != "gemm" or tile is None or not launch.grid:
        return score
    blocks = int(np.prod(launch.grid))
    a, b = int(tile[1]), int(tile[2])
    tiles = [
        row["batch"] * -(-row["m"] // x) * -(-row["n"] // y)
        for x, y in ((a, b), (b, a))
    ]
    if any(n <= blocks <= 1.4 * n + 4 for n in tiles):  # clusters round up
        return score + 2
    return score if min(tiles) > blocks else score - 1  # persistent kernels loop


def _typed(row: Row, kernel: str) -> Row | None:
    """The row with the types that the kernel's name states."""
    stated = names.kernel_dtype(kernel)
    kept = {key: x for key, x in row.items() if key != "count"}
    if row["op"] == "gemm" and stated is not None:
        layout = names.product_layout(kernel)
        kept |= {"dtype": stated} | ({"layout": layout} if layout else {})
    if row["op"] == "moe":
        kept |= expert_types(kernel)
    return valid(kept) or valid({k: x for k, x in row.items() if k != "count"})


def _norms(
    launches: Sequence[Launch], listing: Sequence[Row], tokens: int
) -> dict[int, Row]:
    """Norms with a block for each token, as the model's."""
    norms = [x for x in listing if x["op"].endswith("norm") and x["rows"] == tokens]
    rows: dict[int, Row] = {}
    plain = next((x for x in norms if not x.get("residual")), None)
    added = next((x for x in norms if x.get("residual")), plain)
    for i, launch in enumerate(launches):
        if launch.operator or not launch.grid or launch.grid[0] != tokens:
            continue
        if "norm" not in launch.name or names.kernel_class(launch.name) != "norm":
            continue
        row = added if re.search(r"add|enable_if", launch.name) else plain
        if row is not None:
            rows[i] = {k: x for k, x in row.items() if k != "count"}
    return rows
