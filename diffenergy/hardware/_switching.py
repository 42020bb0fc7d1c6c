"""How long a change of clocks takes, as published (`data/facts`)."""

import functools
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

_FILE: Final = (
    Path(__file__).parents[1] / "data" / "facts" / "clock_switch_latency.toml"
)
_OTHERS: Final = "gpu-typical"


class SwitchLatency(NamedTuple):
    """From the request until the clock acts (s), and where the figure comes from."""

    latency: float
    source: str
    quality: str
    typical: bool
    """Whether it is that of GPUs in general."""


def switch_latency(gpu: str) -> SwitchLatency:
    """Published latency of a change of the SM clock of a bundled GPU; that of GPUs in
    general where there is none.

    >>> switch_latency("h200-sxm").latency
    0.006
    """
    facts = _facts()
    name = next((name for name, fact in facts.items() if gpu in fact["gpus"]), _OTHERS)
    fact = facts[name]
    return SwitchLatency(
        fact["latency"], fact["source"], fact["quality"], name == _OTHERS
    )


@functools.cache
def _facts() -> dict[str, dict[str, Any]]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))
