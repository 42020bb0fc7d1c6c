"""Estimates side by side: the JSON of `compare`."""

import string
from collections.abc import Mapping
from typing import Any, Final

COMPARED: Final = ("time_s", "energy_j", "avg_power_w")
"""What estimates are compared by."""


def comparison(*summaries: Mapping[str, Any]) -> dict[str, Any]:
    """`{a, b, ratio}` of two summaries, the ratios being B / A; of more their letters
    and `ratios` of each to A."""
    letters = string.ascii_lowercase[: len(summaries)]
    first, *others = summaries
    ratios = [{key: x[key] / first[key] for key in COMPARED} for x in others]
    result = {**dict(zip(letters, summaries, strict=True)), "ratio": ratios[0]}
    if len(others) > 1:
        result["ratios"] = dict(zip(letters[1:], ratios, strict=True))
    return result
