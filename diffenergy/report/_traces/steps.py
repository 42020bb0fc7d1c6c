"""A training step on many GPUs as pictures, pages and traces tell of it."""

from collections.abc import Mapping
from typing import Final

from ...plans import SLICE_KINDS, Timeline

WORDS: Final[Mapping[str, str]] = {
    "weights": "gradients of weights",
    "exchange": "late exchange",
    "rest": "beyond the parts",
} | {x: x for x in ("forward", "backward", "optimizer")}
"""Kinds of slices (`SLICE_KINDS`) in words."""


def slice_name(timeline: Timeline, i: int) -> str:
    """What a slice is, its micro-batch (from 1) and virtual stage."""
    name = WORDS[SLICE_KINDS[timeline.kind[i]]]
    if timeline.batch[i] < 0:
        return name
    several = (
        f" of virtual stage {timeline.chunk[i] + 1}" if timeline.chunk.max() else ""
    )
    return f"{name} {timeline.batch[i] + 1}{several}"


def drawable(timeline: Timeline | None) -> Timeline:
    """The timeline; raises `ValueError` where there is none."""
    if timeline is None:
        raise ValueError(
            "the step has more than 32,768 micro-batches of virtual stages, which are "
            "not followed one by one; give a smaller `global_batch` or `vp`."
        )
    return timeline
