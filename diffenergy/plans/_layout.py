"""Which layers each virtual stage of a pipeline has, and which stages are alike."""

import dataclasses
from collections import Counter

from ._plan import Plan


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A virtual stage: its `layers`, whether it has the embedding or the head."""

    layers: int
    first: bool
    last: bool


@dataclasses.dataclass(frozen=True)
class Layout:
    """Virtual stages of a model. `spans`: (start, stop) of the layers of each place;
    `chunks`: the kinds among them; `stages`: what each GPU of the pipeline has, as
    places in `chunks`."""

    spans: tuple[tuple[int, int], ...]
    chunks: tuple[Chunk, ...]
    stages: tuple[tuple[int, ...], ...]

    @property
    def kinds(self) -> dict[tuple[int, ...], int]:
        """Stages that are alike, and how many of each kind there are."""
        return Counter(tuple(sorted(x)) for x in self.stages)

    def place(self, chunk: int) -> int:
        """The first place of a kind of virtual stages."""
        return next(i for i, x in enumerate(self.each()) if x == self.chunks[chunk])

    def each(self) -> list[Chunk]:
        """Kind of every place."""
        number = len(self.spans)
        return [
            Chunk(stop - start, i == 0, i == number - 1)
            for i, (start, stop) in enumerate(self.spans)
        ]


def layout(layers: int, plan: Plan, name: str) -> Layout:
    """How the pipeline of a plan divides `layers`: evenly; where the embedding and the
    head counted as layers make it even (Megatron-LM), so; else the first stages have
    one more.

    Raises `ValueError` if there are more virtual stages than layers and ends.

    >>> layout(126, Plan(pp=16, vp=8), "x").spans[:3]
    ((0, 0), (0, 1), (1, 2))
    """
    places = plan.pp * plan.vp
    if places > layers + 2:
        raise ValueError(
            f"`plan` has pp={plan.pp}"
            + (f" and vp={plan.vp}" if plan.vp > 1 else "")
            + f", but {name} has {layers} layers; give at most as many stages."
        )
    if places > 1 and layers % places and (layers + 2) % places == 0:
        each = (layers + 2) // places
        sizes = [each - 1, *[each] * (places - 2), each - 1]
    else:
        each, more = divmod(layers, places)
        sizes = [each + (i < more) for i in range(places)]
    stops = [sum(sizes[: i + 1]) for i in range(places)]
    spans = tuple((stop - n, stop) for stop, n in zip(stops, sizes, strict=True))
    plain = Layout(spans, (), ())
    each_chunk = plain.each()
    chunks = tuple(dict.fromkeys(each_chunk))
    stages = tuple(
        tuple(chunks.index(x) for x in each_chunk[s :: plan.pp]) for s in range(plan.pp)
    )
    return Layout(spans, chunks, stages)
