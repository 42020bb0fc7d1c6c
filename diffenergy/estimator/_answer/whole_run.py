"""What a whole training run takes: one optimizer step, as often as its tokens need."""

import math
from collections.abc import Mapping
from typing import Any, Final

from ...power_time import Goodput
from ...units import hour, kWh
from ...workload import Number

_INTERVALS: Final = ("time_s_p5_p95", "energy_j_p5_p95", "wall_energy_j_p5_p95")
_SUMS: Final = ("wall_energy_j", "carbon_g", "cost", "sci_g")
"""Keys of the wall that grow with the steps."""


def whole_run(
    summary: Mapping[str, Any], tokens: Number, goodput: Goodput | None = None
) -> dict[str, Any]:
    """`run` of an answer: the step in `summary` (its JSON), which has its share of what
    `goodput` costs, tokens / (tokens a step) times, on all its GPUs; the intervals grow
    as much, being of constants that every step shares.

    >>> step = {"time_s": 2.0, "energy_j": 9e3, "tokens_per_s": 5e4, "num_gpus": 8}
    >>> result = whole_run(step, 1e9)
    >>> result["steps"], result["time_s"], result["gpu_hours"], result["energy_kwh"]
    (10000.0, 20000.0, 44.44444444444444, 25.0)
    """
    steps = tokens / (summary["tokens_per_s"] * summary["time_s"])
    time, energy = steps * summary["time_s"], steps * summary["energy_j"]
    return {
        "tokens": tokens,
        "steps": steps,
        "time_s": time,
        "energy_j": energy,
        "gpu_hours": summary.get("num_gpus", 1) * time / hour,
        "energy_kwh": energy / kWh,
        **_shares(goodput or Goodput(), time),
        **{
            name: [steps * x for x in summary[name]]
            for name in _INTERVALS
            if name in summary
        },
        **_of_site(summary, steps),
    }


def _shares(goodput: Goodput, time: float) -> dict[str, Any]:
    """Where the `time` of a run (s) goes; of failures that are known also how many."""
    useful = time * goodput.share
    shares = {
        "goodput": goodput.share,
        "useful_s": useful,
        "lost_s": goodput.lost * useful,
        "waiting_s": goodput.waiting * useful,
    }
    if goodput.restarts is None or goodput.checkpoints is None:
        return shares
    return shares | {
        "mtbf_gpu_hours": goodput.mtbf,
        "checkpoint_every_s": goodput.every,
        "restarts": goodput.restarts * useful,
        "checkpoints": goodput.checkpoints * useful,
    }


def _of_site(summary: Mapping[str, Any], steps: float) -> dict[str, Any]:
    """Keys of the wall, where a node was given."""
    if "node" not in summary:
        return {}
    known = {x: summary[x] for x in _SUMS}
    parts = summary["wall_energy_j_by_part"]
    pue = summary["site_energy_j"] / summary["wall_energy_j"]
    interval = summary["wall_energy_j_p5_p95"]
    return {
        **{x: None if value is None else steps * value for x, value in known.items()},
        "wall_energy_j_by_part": {x: steps * value for x, value in parts.items()},
        "site_energy_kwh": steps * summary["site_energy_j"] / kWh,
        "site_energy_kwh_p5_p95": [steps * pue * x / kWh for x in interval],
        "grade": summary["node"]["grade"],
        "flop": steps * summary["model_flops"] if "model_flops" in summary else None,
    }


def check_tokens(
    tokens: Number | None, about: Mapping[str, Any], per_step: Number | None
):
    """Raises `ValueError` unless a run of `tokens` can be made of the request `about`,
    whose steps read `per_step` of them (None: not known)."""
    if tokens is None:
        return
    if isinstance(tokens, bool) or not math.isfinite(tokens) or tokens <= 0:
        raise ValueError(f"`tokens` is {tokens!r}; allowed is a number above 0.")
    if about["phase"] != "train":
        raise ValueError(
            f"`tokens` is {tokens:g}, but the phase {about['phase']} is no training; "
            "leave it out or take `--phase train`."
        )
    if per_step is None:
        raise ValueError(
            f"`tokens` is {tokens:g}, but a step of {about['model']} reads no number "
            "of tokens that is known; leave it out."
        )
