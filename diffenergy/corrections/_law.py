"""Energies that no fit has seen, by laws of published claims.

Core energy of a process n: ln core(n) = ln core(n0) + b (s(n) - s(n0)), with s the
ln of the claimed power at equal speed and n0 the nearest fitted process: GPUs take
about half of a claim, since operands, SRAM, wires and clock trees shrink less than
logic. Energy of a DRAM byte: path + device, of which a new type changes the second.
Energy of a byte on a link: that of its medium. Facts: `data/facts/processes.toml` and
`memories.toml`; no JAX, so that GPU files are checked without it.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ..files import facts

CLAIM_SHARE: Final = 0.55
"""b: share of a claim (in ln) that GPUs take (A100 and A10 to H100: 0.5 to 0.75)."""
_SHARE_SD: Final = 0.20
_DESIGN_SD: Final = 0.15
"""Sd in ln from design to design on one process; grows as much with the square root of
the distance, for what no claim says."""
_PATH: Final = 42.6
"""pJ of a byte on the way from the chip to the DRAM (fit over six types)."""
_MEMORY_SD: Final = (0.10, 0.35)
"""Sd in ln of a memory's energy: alone, and per ln of the ratio to its anchor."""
_LINK_SD: Final = 0.5
_REFERENCE: Final = ("node:7nm", "memory:HBM2")
"""Of which the global constants are."""
_HALF: Final = 1.645
Factors = Mapping[str, Mapping[str, float]]


class Forecast(NamedTuple):
    """A factor (or J/B of a link) that a law gives for a tag that no fit has seen, its
    sd in ln, and the fitted level that it starts from."""

    tag: str
    constant: str
    factor: float
    sd: float
    anchor: str

    @property
    def warning(self) -> str:
        """What a person should know of it; "" of a fitted process in a new design."""
        kind, _, name = self.tag.partition(":")
        if name.rpartition("/")[2] == self.anchor:
            return ""
        key, what, unit, why = _WARNINGS[kind]
        low, high = (self.factor * math.exp(x * self.sd) for x in (-_HALF, _HALF))
        return (
            f"{key} {name} was never fitted: {what} taken at {self.factor:.2f} x "
            f"{unit} (5-95 %: {low:.2f} to {high:.2f}), from {self.anchor} by {why}; "
            "five power readings replace it."
        )


_WARNINGS: Final = {
    "node": ("`process_node`", "core energies", "7nm", "the foundries' claims; at a "
        "power limit a guessed voltage curve weighs as much"),
    "memory": ("`memory`", "the energy of a DRAM byte", "HBM2", "figures of devices"),
    "link": ("the link", "the energy of a byte on it", "the usual", "its medium"),
}  # fmt: skip


def known_process(word: str) -> str:
    """The process `word`, by its own name; of two ("a/b": base and compute dies) both.

    Raises `ValueError` for an unknown one.

    >>> known_process("N4P"), known_process("N6/N5")
    ('4NP', '6nm/5nm')
    """
    processes = facts("processes")
    names = {x: name for name, row in processes.items() for x in row.get("aliases", ())}
    parts = [names.get(x, x) for x in word.split("/")]
    if len(parts) > 2 or not set(parts) <= set(processes):
        raise ValueError(unknown_word("process_node", word, processes))
    return "/".join(parts)


def unknown_word(key: str, word: str, words: Iterable[str]) -> str:
    """What is wrong with a word of which nothing is known."""
    return f"`{key}` is {word!r}; known are {', '.join(words)}; write the nearest."


def _fitted(tag: str, levels: Factors) -> bool:
    """Whether a process or a memory that some fit has seen has a level in these."""
    return tag in levels or tag in _REFERENCE


def node_factor(
    name: str, levels: Factors, design: bool = True
) -> tuple[float, float, str]:
    """Core energy of a process over that of 7 nm, its sd in ln, the fitted process that
    it starts from. `design`: with what that one's design adds, for a GPU whose own
    architecture has no level.

    >>> levels = {"node:4NP": {"core_energy": 0.6}}
    >>> node_factor("N2", levels)[0] / 0.6  # exp(0.55 (-1.09 + 0.61))
    0.7679735908553963
    """
    rows = facts("processes")
    s = rows[name]["s"]
    fitted = [x for x in rows if "design" in rows[x] and _fitted(f"node:{x}", levels)]
    anchor = min(fitted, key=lambda x: abs(rows[x]["s"] - s))
    away = s - rows[anchor]["s"]
    tags = (f"node:{anchor}", *(rows[anchor]["design"] if design else ()))
    base = math.prod(levels.get(tag, {}).get("core_energy", 1.0) for tag in tags)
    unsaid = _DESIGN_SD * math.sqrt(abs(away))
    sd = math.hypot(_DESIGN_SD, _SHARE_SD * away, unsaid)
    return base * math.exp(CLAIM_SHARE * away), sd, anchor


def memory_factor(name: str, levels: Factors) -> tuple[float, float, str]:
    """Energy of a DRAM byte over that of HBM2, its sd in ln, the fitted type that it
    starts from: the nearest of its kind, the newest of several."""
    rows = facts("memories")["memory"]
    energy, stacked = rows[name]["device"], name.startswith("HBM")
    fitted = [x for x in rows if "fitted" in rows[x] and _fitted(f"memory:{x}", levels)]
    kin = [x for x in fitted if x.startswith("HBM") == stacked]
    anchor = min(reversed(kin), key=lambda x: abs(rows[x]["device"] - energy))
    ratio = (_PATH + energy) / (_PATH + rows[anchor]["device"])
    alone, slope = _MEMORY_SD
    sd = math.hypot(alone, slope * math.log(ratio))
    base = levels.get(f"memory:{anchor}", {}).get("energy_dram", 1.0)
    return base * ratio, sd, anchor


def law_of(tag: str, levels: Factors, design: bool = False) -> Forecast | None:
    """What the laws say of a tag; None of one that they do not concern, and of a type
    of memory that has a fitted level."""
    kind, _, name = tag.partition(":")
    if kind == "node" and name.rpartition("/")[2] in facts("processes"):
        core = node_factor(name.rpartition("/")[2], levels, design)
        return Forecast(tag, "core_energy", *core)
    memories, media = facts("memories")["memory"], facts("memories")["medium"]
    known = kind == "memory" and name in memories
    if known and not ("fitted" in memories[name] and _fitted(tag, levels)):
        return Forecast(tag, "energy_dram", *memory_factor(name, levels))
    if kind == "link" and name in media:
        usual, price = levels["global"]["energy_link"], 8e-12 * media[name]["energy"]
        anchor = f"{usual * 1e12:.0f} pJ/B"
        return Forecast(tag, "energy_link", price / usual, _LINK_SD, anchor)
    return None


def forecasts(
    levels: Factors, tags: Iterable[str], stranger: bool, foreign: bool
) -> list[Forecast]:
    """What the laws say of the tags of a GPU that `levels` lack: a level wins. A GPU
    without fitted levels of its own (`foreign`) takes from a fitted process also what
    the design adds that it was fitted on; one that no file describes (a `stranger`)
    does so where the process is its own, and takes the law of its link."""
    laws = []
    for tag in tags:
        kind, _, name = tag.partition(":")
        added = kind == "node" and "design" in facts("processes").get(name, {})
        if stranger and added or tag not in levels and (stranger or kind != "link"):
            law = law_of(tag, levels, foreign)
            laws += [law] if law else []
    return laws


def with_laws(
    levels: Factors, laws: Iterable[Forecast]
) -> dict[str, Mapping[str, float]]:
    """`levels` with those of the laws; what a law does not say is as in a fitted
    process of the name, and in the memory that it starts from."""
    extended = dict(levels)
    for law in laws:
        kind, _, name = law.tag.partition(":")
        like = law.anchor if kind == "memory" else name.rpartition("/")[2]
        others = levels.get(f"{kind}:{like}", {})
        extended[law.tag] = {**others, law.constant: law.factor}
    return extended
