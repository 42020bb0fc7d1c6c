"""Names of a training step's slices, for charts, pages and traces."""

from collections.abc import Mapping
from typing import Final

from ...plans import SLICE_KINDS, Timeline

WORDS: Final[Mapping[str, str]] = {
    "weights": "gradients of weights",
    "exchange": "late exchange",
} | {x: x for x in ("forward", "backward", "optimizer")}
"""Display names of `SLICE_KINDS`."""


def slice_name(timeline: Timeline, i: int) -> str:
    """Return a slice's name with its micro-batch (from 1) and virtual stage."""
    name = WORDS[SLICE_KINDS[timeline.kind[i]]]
    if timeline.batch[i] < 0:
        return name
    several = (
        f" of virtual stage {timeline.chunk[i] + 1}" if timeline.chunk.max() else ""
    )
    return f"{name} {timeline.batch[i] + 1}{several}"


def require_timeline(timeline: Timeline | None) -> Timeline:
    """Return the timeline; raises `ValueError` if there is none."""
    if timeline is None:
        raise ValueError(
            "the step has more than 32,768 micro-batches of virtual stages, which are "
            "not followed one by one; give a smaller `global_batch` or `vp`."
        )
    return timeline
