"""How long a change of clocks takes, as published (`data/facts`)."""

from typing import Final, NamedTuple

from ..files import facts

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
    known = facts("clock_switch_latency")
    name = next((name for name, fact in known.items() if gpu in fact["gpus"]), _OTHERS)
    fact = known[name]
    return SwitchLatency(
        fact["latency"], fact["source"], fact["quality"], name == _OTHERS
    )
