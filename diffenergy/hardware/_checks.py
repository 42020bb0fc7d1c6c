"""Checks of what a GPU file holds: each entry by itself, numbers that need each other,
and how they are known. All raise `ValueError` for what cannot be right."""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ..corrections import generations, known_process, unknown_word
from ..files import facts
from ..units import GiB
from ._card import GpuCard
from ._dies import area_model, count_circuits, die_area, process_rules
from ._fields import FIELDS, OPTIONAL, WORDS, GpuFile, NumberField

QUALITIES: Final = (
    "datasheet", "whitepaper", "vendor_docs", "measured", "derived", "recall", "guess",
)  # fmt: skip
"""How a number of a file can be known."""


CHOSEN: Final = ("memory", "process_node")
"""Words of a GPU that a what-if may change."""


def check_word(field: str, word: Any) -> None:
    """Checks a word that decides something: for slips, and for what nothing is known
    of."""
    words = {
        "architecture": generations(),
        "memory": facts("memories")["memory"],
        "process_node": facts("processes"),
    }[field]
    if not isinstance(word, str):
        raise ValueError(f"`{field}` is {word!r}; give a word, such as {[*words][-1]}.")
    if meant := _misspelt(word, words):
        raise ValueError(
            f"`{field}` is {word!r}; write {meant} if that is meant: the word decides "
            "which constants serve the GPU."
        )
    if field == "memory" and word not in words:
        raise ValueError(unknown_word(field, word, words))
    if field == "process_node":
        known_process(word)


def _misspelt(word: str, words: Iterable[str]) -> str:
    """The known word that `word` is a slip of; "" for a known and for a new one.

    Signs and cases apart nothing tells two generations from each other but their
    number, so that only words without one are compared more loosely.

    >>> _misspelt("Hoper", generations()), _misspelt("HBM-3E", ["HBM3e"])
    ('Hopper', 'HBM3e')
    >>> _misspelt("CDNA5", generations()), _misspelt("Feynman", generations())
    ('', '')
    """
    if word in words:
        return ""
    plain = {_plain(other): other for other in words}
    cutoff = 0.8 if word.isalpha() else 1.0
    near = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else ""


def _plain(word: str) -> str:
    return re.sub("[^a-z0-9]", "", word.lower())


def checked_provenance(file: GpuFile) -> dict[str, Any]:
    """The table `[provenance]`, if each entry says how one number is known."""
    keys = (*FIELDS, *WORDS, *OPTIONAL, *file.physical)
    for field, entry in file.provenance.items():
        where = f"`{field}` in `[provenance]`"
        if field not in keys:
            raise ValueError(
                f"{where} is not a key of this file; {nearest(close(field, keys))}."
            )
        if not isinstance(entry, dict):
            raise ValueError(f"{where} is {entry!r}; give {{ {', '.join(_STATED)} }}.")
        for key in (*_STATED, *entry):
            if key not in _STATED:
                raise ValueError(
                    f"{where} has `{key}`; allowed are {', '.join(_STATED)}."
                )
            says, right = _STATED[key]
            if key not in entry:
                raise ValueError(f"{where} has no `{key}`; add {says}.")
            if not right(entry[key]):
                raise ValueError(f"`{key}` of {where} is {entry[key]!r}; give {says}.")
    return file.provenance


_STATED: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "source": ("text in quotes", lambda x: isinstance(x, str) and bool(x.strip())),
    "quality": (f"one of {', '.join(QUALITIES)}", lambda x: x in QUALITIES),
    "year": ("a year such as 2024", lambda x: type(x) is int and 1990 <= x <= 2100),
}
"""What an entry of `[provenance]` says of a number: what to give, and whether it is."""


def checked_number(field: str, value: Any, rule: NumberField | None = None) -> float:
    """`value` as a float, if it can be right for `field`."""
    rule = rule or FIELDS[field]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"`{field}` is {value!r}; give a number ({rule.unit}).")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(
            f"`{field}` is {value}; give a finite number ({rule.unit})."
        ) from None
    rule.check(field, number)
    return number


def check_together(values: Mapping[str, float]) -> None:
    """Checks that need two numbers: order of limits, a voltage that never falls."""
    for low, high in (
        ("sm_clock_min", "sm_clock_max"),
        ("power_limit_min", "power_limit_max"),
        ("power_limit_min", "tdp"),
        ("tdp", "power_limit_max"),
    ):
        if values[low] > values[high]:
            raise ValueError(
                f"`{low}` is {values[low]:g}, above `{high}` {values[high]:g}; "
                f"lower the first or raise the second."
            )
    if values["num_sms"] % 1:
        raise ValueError(
            f"`num_sms` is {values['num_sms']:g}; give a whole number of SMs."
        )
    if values["ambient_temperature"] < -273.15:
        raise ValueError(
            f"`ambient_temperature` is {values['ambient_temperature']:g}; "
            f"give degrees Celsius, at least -273.15."
        )
    above_knee = max(0.0, values["sm_clock_max"] - values["vf_knee_clock"])
    if values["vf_slope"] + 2 * values["vf_curvature"] * above_knee < 0:
        raise ValueError(
            f"`vf_curvature` is {values['vf_curvature']:g}, with which the voltage "
            f"falls before `sm_clock_max`; raise it or `vf_slope`."
        )


def doubts(card: GpuCard) -> tuple[list[str], list[str]]:
    """What cannot be of a chip, and what is unlikely: sentences that name the field,
    what it is against what, and the remedy.

    >>> from diffenergy.hardware import read_gpu
    >>> doubts(read_gpu("h100-sxm"))
    ([], [])
    """
    impossible, unlikely = [], []
    for sentence, ratio, refused, doubted in _ratios(card):
        if not refused[0] <= ratio <= refused[1]:
            impossible.append(sentence)
        elif not doubted[0] <= ratio <= doubted[1]:
            unlikely.append(sentence)
    return impossible, unlikely


_Band = tuple[float, float]


def _ratios(card: GpuCard) -> Iterator[tuple[str, float, _Band, _Band]]:
    """What of a chip is to fit together: a sentence, a ratio, and between what it has
    to lie and should lie; bundled GPUs are well inside."""
    v, physical, most = card.values, card.physical, math.inf
    clock = v["sm_clock_max"] * v["sm_clock_applied_share"]
    ratio = v["l2_bytes_per_cycle"] * clock / v["dram_bandwidth"]
    yield (
        f"`l2_bytes_per_cycle` is {v['l2_bytes_per_cycle']:g}, at the top clock "
        f"{ratio:.2f} times `dram_bandwidth`, which passes L2; usual are 1.5 to 6: "
        "give the bytes per cycle of the whole GPU.",
        ratio, (1.0, most), (1.5, most),
    )  # fmt: skip
    yield from _of_stacks(card)
    rate = v["tensor_flop_per_cycle_bf16"]
    highest, remedy = _MOST_FLOP["systolic" if card.mma == "systolic" else "SM"]
    yield (
        f"`tensor_flop_per_cycle_bf16` is {rate:g}; an SM with {card.mma} has at most "
        f"{highest:.0f}: give the rate of one {remedy}.",
        rate, (0.0, highest), (0.0, highest),
    )  # fmt: skip
    yield (
        f"`smem_per_sm` is {v['smem_per_sm']:g}; two stages of 64x64 tiles take 16384: "
        "give the bytes of one SM.",
        v["smem_per_sm"], (16384.0, most), (16384.0, most),
    )  # fmt: skip
    for name, peak in card.published.items():
        rate = v.get(f"tensor_flop_per_cycle_{name}") or v.get(
            f"fma_flop_per_cycle_{name}"
        )
        if rate and isinstance(peak, Mapping) and {"flops", "clock"} <= {*peak}:
            ratio = v["num_sms"] * rate * peak["clock"] / peak["flops"]
            yield (
                f"the rate of {name} and `num_sms` give {ratio:.2f} times the "
                f"published {peak['flops']:g}; give dense FLOP per cycle and "
                "SM, or correct `[published]`.",
                ratio, (0.85, 1.15), (0.95, 1.05),
            )  # fmt: skip
    full = _full_power(card, clock)
    ratio = v["tdp"] / full
    so = f"they run at about {ratio**0.5:.0%} of it" if ratio < 1 else "none draws it"
    yield (
        f"`tdp` is {v['tdp']:g}, {ratio:.2f} times the {full:.0f} W of dense products "
        f"at the top clock ({so}); check `tdp`, `sm_clock_max` and the rates, "
        "which are per SM.",
        ratio, (0.1, 4.0), (0.25, 2.0),
    )  # fmt: skip
    mm2, room = _area(card), _RETICLE * float(physical.get("num_dies", 1))
    yield (
        f"`num_sms`, `smem_per_sm`, `l2_capacity` and the rates take about {mm2:.0f} "
        f"mm2 in {card.process_node}, more than the {room:.0f} that can be exposed; "
        "correct them, or give `num_dies` in `[physical]`.",
        mm2, (0.0, most), (0.0, room),
    )  # fmt: skip


def _of_stacks(card: GpuCard) -> Iterator[tuple[str, float, _Band, _Band]]:
    """Ratios as of `_ratios`, for each stack of DRAM, where there are any."""
    memory, stacks = facts("memories")["memory"][card.memory], _stacks(card)
    for field, key, unit, name in (
        ("dram_bandwidth", "stack_rate", 1e9, "GB/s"),
        ("dram_capacity", "stack_size", GiB, "GiB"),
    ):
        if stacks and key in memory:
            each, limit = card.values[field] / stacks / unit, memory[key]
            yield (
                f"`{field}` is {card.values[field]:g}, {each:.4g} {name} for each of "
                f"{stacks:g} stacks of {card.memory}, which has at most {limit:g} "
                f"{name}; correct it, `memory` or `dram_stacks`.",
                each / limit, (0.0, 1.2), (0.0, 1.05),
            )  # fmt: skip


_MOST_FLOP: Final = {
    "SM": (32768.0, 'SM, not of the chip; describe arrays as `mma = "systolic"`'),
    "systolic": (2.0**21, "core (arrays x side^2 x 2), not of the chip"),
}
"""FLOP/cycle of an SM; 16 arrays of 256 x 256 of a core, and how to give it."""
_RETICLE: Final = 858.0
"""mm2 of the largest die that scanners expose (26 x 33 mm)."""


def _stacks(card: GpuCard) -> float:
    """HBM stacks; 0 where they are not known."""
    stacks = card.physical.get("dram_stacks", 0)
    return float(stacks) if isinstance(stacks, int | float) and stacks > 0 else 0.0


def _full_power(card: GpuCard, clock: float) -> float:
    """W of dense products at `clock` beside DRAM at its rate, warm."""
    from ..corrections import read_corrections, resolve

    v, c = card.values, resolve(read_corrections().levels_of(card), card.tags)
    floor, above = v["vf_floor_voltage"], max(0.0, clock - v["vf_knee_clock"])
    rise = (v["vf_slope"] + v["vf_curvature"] * above) * above / floor
    flops, kind = v["tensor_flop_per_cycle_bf16"], "energy_tensor"
    if not flops:
        flops, kind = v["fma_flop_per_cycle_fp32"], "energy_fma"
    core = v["num_sms"] * clock * (flops * c[kind] + c["sm_clock_energy"])
    idle = v["idle_constant"] + v["idle_leakage"] * floor**4
    idle += v["idle_clock"] * v["sm_clock_min"] * floor**2
    dram = v["dram_bandwidth"] * c["energy_dram"]
    return 1.3 * idle + core * c["core_energy"] * (1 + rise) ** 2 + dram


def _area(card: GpuCard) -> float:
    """mm2 of the dies, by the regression over published ones."""
    v, rules = card.values, process_rules(card.process_node)
    circuits = count_circuits(v, v["num_sms"], v["l2_capacity"], 2 * _stacks(card))
    return die_area(area_model(), circuits, rules.logic_area, rules.bit_cell)


def close(word: str, words: Iterable[str]) -> list[str]:
    """Up to three of `words` that look like `word`."""
    return difflib.get_close_matches(word, list(words), n=3, cutoff=0.4)


def nearest(names: list[str]) -> str:
    """End of a message: names that may be meant."""
    if not names:
        return "`diffenergy gpus show h100-sxm` lists those there are"
    return "nearest: " + ", ".join(f"`{name}`" for name in names)
