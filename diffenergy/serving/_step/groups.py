"""Attention data parallel: groups of the GPUs of a replica, each with sequences and KV
caches of its own, whose tokens meet in the experts of all GPUs.

The step is that of the fullest group: of B sequences over D groups at random it has
about B/D + z sqrt(B/D), with z the mean maximum of D standard normals. Of the ranks
that share the experts the most loaded sets their time, as its routing says.
"""

import dataclasses
import math
from typing import Final

import numpy as np

from ...workload import Kernel, LanguageModel

_FULLEST: Final = (0.0, 0.564, 1.03, 1.42, 1.77, 2.07, 2.34)
"""Mean maximum of 1, 2, 4, ... 64 standard normals."""
_OVERLAPPED: Final = 64
"""Sequences of a group from which half of an exchange hides behind another half
batch."""
_SENT: Final = 0.75
"""Bytes of an exchange over those of 16 bit both ways: 8 bit out, 16 bit back."""


def fullest(number: int) -> float:
    """z of the fullest of a number of groups.

    >>> fullest(8)
    1.42
    """
    logs = np.arange(len(_FULLEST))
    return float(np.interp(math.log2(number), logs, _FULLEST))


def grouped_rows(
    rows: list[Kernel], groups: int, sequences: int, tokens: int, prompt: int
) -> list[Kernel]:
    """Rows of one GPU where each of `groups` has so many `sequences` that decode with
    `tokens` in all, and one of them a `prompt`: experts have the tokens of all;
    exchanges send a token once to each rank."""
    if groups == 1:
        return rows
    number, out = groups * tokens + prompt, list[Kernel]()
    ranks = max((row.get("moe_ep_size", 1) for row in rows), default=1)
    chosen = max((row.get("topk", 1) for row in rows), default=1)
    for row in rows:
        if row["op"] == "moe":  # of the most loaded rank, as its routing says
            row = row | {"num_tokens": max(number, 1)}
        elif row.get("collective") == "all_to_all":
            hidden = 0.5 if sequences >= _OVERLAPPED else 1.0
            once = min(chosen, ranks) / chosen
            bytes_ = row["bytes"] * once * _SENT
            row = row | {"bytes": bytes_, "count": row["count"] * hidden}
        out.append(row)
    return out


def prompt_share(model: LanguageModel, groups: int) -> float:
    """Work of a prompt on the mean GPU over that on those of its group: its attention
    and dense layers run in one group, its experts on all GPUs."""
    dense = sum(w.number * n for w, n in model.all_weights() if w.used == 1)
    experts = sum(w.number * w.used * n for w, n in model.all_weights() if w.used < 1)
    return (dense / groups + experts) / (dense + experts)


@dataclasses.dataclass(frozen=True)
class Grouping:
    """`number` of groups; z of the fullest, and `prompts` (`prompt_share`)."""

    number: int
    fullest: float
    prompts: float


def grouping(model: LanguageModel, number: int) -> Grouping | None:
    """How sequences spread over groups; None of one."""
    if number == 1:
        return None
    return Grouping(number, fullest(number), prompt_share(model, number))
