"""Which layers each virtual stage of a pipeline has, and which stages are alike."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ._plan import Plan


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A virtual stage: the kind of each of its layers, whether it has the embedding or
    the head, and which of the kinds are of layers that are `frozen`."""

    kinds: tuple[int, ...]
    first: bool
    last: bool
    frozen: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Layout:
    """Virtual stages of a model. `spans`: (start, stop) of the layers of each place;
    `each`: its kind; `chunks`: the kinds among them; `stages`: what each GPU of the
    pipeline has, as places in `chunks`, and `share` of the micro-batches of each (with
    DualPipe half of those of two)."""

    spans: tuple[tuple[int, int], ...]
    each: tuple[Chunk, ...]
    chunks: tuple[Chunk, ...]
    stages: tuple[tuple[int, ...], ...]
    share: float = 1.0

    def spans_of(self, stage: int) -> tuple[tuple[int, int], ...]:
        """(start, stop) of the layers of each virtual stage of a GPU."""
        spans = self.spans[stage :: len(self.stages)]
        return spans if self.share == 1 else (*spans, self.spans[-1 - stage])

    @property
    def kinds(self) -> dict[tuple[int, ...], int]:
        """Stages that are alike, and how many of each kind there are."""
        return Counter(tuple(sorted(x)) for x in self.stages)

    def place(self, chunk: int) -> int:
        """The first place of a kind of virtual stages."""
        return self.each.index(self.chunks[chunk])


def pipeline_layout(
    kinds: Sequence[int],
    plan: Plan,
    name: str,
    further: int = 0,
    split: tuple[int, ...] | None = None,
    frozen: int = 0,
) -> Layout:
    """How the pipeline of a plan divides layers of these `kinds`, the first `frozen`
    not trained, behind which the last stage has `further` ones: as `split` says, which
    has those of each virtual stage; else evenly; where the embedding and the head
    counted as layers make it even (Megatron-LM), so; else the first stages have one
    more.

    Raises `ValueError` if there are more virtual stages than layers and ends, or a
    split is of other layers, or has a stage of nothing.

    >>> layout(126 * (0,), Plan(pp=16, vp=8), "x").spans[:3]
    ((0, 0), (0, 1), (1, 2))
    """
    layers, places = len(kinds), plan.pp * plan.vp
    every = layers + further
    if places > every + 2:
        raise ValueError(
            f"`plan` has pp={plan.pp}"
            + (f" and vp={plan.vp}" if plan.vp > 1 else "")
            + f", but {name} has {layers} layers; give at most as many stages."
        )
    if split is not None:
        _check_split(split, layers, places, name)
        sizes, further = list(split), 0
    elif places > 1 and every % places and (every + 2) % places == 0:
        each = (every + 2) // places
        sizes = [each - 1, *[each] * (places - 2), each - 1]
    else:
        each, more = divmod(every, places)
        sizes = [each + (i < more) for i in range(places)]
    for place in reversed(range(places)):  # those behind are not of these layers
        behind = min(further, sizes[place])
        sizes[place], further = sizes[place] - behind, further - behind
    stops = itertools.accumulate(sizes)
    spans = tuple((stop - n, stop) for stop, n in zip(stops, sizes, strict=True))
    placed = tuple(
        Chunk(
            tuple(sorted(kinds[start:stop])),
            i == 0,
            i == places - 1,
            tuple(sorted(kinds[start : min(stop, frozen)])),
        )
        for i, (start, stop) in enumerate(spans)
    )
    chunks = tuple(dict.fromkeys(placed))
    stages = tuple(
        tuple(chunks.index(x) for x in placed[s :: plan.pp]) for s in range(plan.pp)
    )
    if plan.order != "dualpipe":
        return Layout(spans, placed, chunks, stages)
    both = tuple(a + b for a, b in zip(stages, stages[::-1], strict=True))
    return Layout(spans, placed, chunks, both, share=0.5)


def _check_split(split: tuple[int, ...], layers: int, places: int, name: str) -> None:
    whole = all(isinstance(x, int) and x >= 0 for x in split) and all(split[1:-1])
    if not whole or len(split) != places or sum(split) != layers:
        raise ValueError(
            f"`split` is {', '.join(map(str, split))}; give the layers of each of the "
            f"{places} stages, of {layers} of {name} in all, none but the first and "
            "the last without one."
        )


def fastest_split(
    layer: float, ends: tuple[float, float], layers: int, places: int
) -> tuple[int, ...]:
    """Layers of each of `places` stages so that the slowest stage is fastest.

    Layers are alike, so that each goes where least time has gathered (the optimum: no
    other place would end earlier with it); stages between the first and the last have
    one at least.

    Args:
        layer: s of one.
        ends: s of what the first and the last stage have beside (embedding, head).
        layers: of the model.
        places: virtual stages.

    >>> fastest_split(1.0, (0.0, 2.0), 10, 4)
    (3, 3, 3, 1)
    """
    sizes = np.r_[0, np.ones(places - 2, int), 0]
    beside = np.r_[ends[0], np.zeros(places - 2), ends[1]]
    for _ in range(layers - places + 2):
        sizes[np.argmin(beside + layer * (sizes + 1))] += 1
    return tuple(sizes.tolist())
