"""Checks of what a GPU file holds: each entry by itself, numbers that need each other,
and how they are known. All raise `ValueError` for what cannot be right."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..corrections._law import known_memory, known_process
from ..files import facts
from ._fields import ARCHITECTURES, FIELDS, OPTIONAL, WORDS, NumberField, Said

QUALITIES: Final = (
    "datasheet", "whitepaper", "vendor_docs", "measured", "derived", "recall", "guess",
)  # fmt: skip
"""How a number of a file can be known."""


def check_words(said: Said) -> None:
    """Checks words that decide something: for slips, and for what nothing is known
    of."""
    for key, known in (
        ("architecture", ARCHITECTURES),
        ("memory", facts("memories")["memory"]),
        ("process_node", facts("processes")),
    ):
        word = getattr(said, key)
        meant = _misspelt(word, known)
        if meant:
            raise ValueError(
                f"`{key}` is {word!r}; write {meant} if that is meant: the word "
                "decides which constants serve the GPU."
            )
    known_memory(said.memory)
    known_process(said.process_node)


def _misspelt(word: str, known: Iterable[str]) -> str:
    """The known word that `word` is a slip of; "" for a known and for a new one.

    Signs and cases apart nothing tells two generations from each other but their
    number, so that only words without one are compared more loosely.

    >>> _misspelt("Hoper", ARCHITECTURES), _misspelt("HBM-3E", ["HBM3e"])
    ('Hopper', 'HBM3e')
    >>> _misspelt("CDNA5", ARCHITECTURES), _misspelt("Rubin", ARCHITECTURES)
    ('', '')
    """
    if word in known:
        return ""
    plain = {_plain(other): other for other in known}
    cutoff = 0.8 if word.isalpha() else 1.0
    near = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else ""


def _plain(word: str) -> str:
    return re.sub("[^a-z0-9]", "", word.lower())


def checked_provenance(said: Said) -> dict[str, Any]:
    """The table `[provenance]`, if each entry says how one number is known."""
    known = (*FIELDS, *WORDS, *OPTIONAL, *said.physical)
    for field, entry in said.provenance.items():
        where = f"`{field}` in `[provenance]`"
        if field not in known:
            raise ValueError(
                f"{where} is not a key of this file; {nearest(close(field, known))}."
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
    return said.provenance


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
    ):
        if values[low] > values[high]:
            raise ValueError(
                f"`{low}` is {values[low]:g}, above `{high}` {values[high]:g}; "
                f"lower the first or raise the second."
            )
    for share in ("fp32_doubled", "sm_clock_applied_share"):
        if not 0 <= values[share] <= 1:
            raise ValueError(
                f"`{share}` is {values[share]:g}; allowed are numbers from 0 to 1."
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


def close(word: str, known: Iterable[str]) -> list[str]:
    """Up to three of `known` that look like `word`."""
    return difflib.get_close_matches(word, list(known), n=3, cutoff=0.4)


def nearest(names: list[str]) -> str:
    """End of a message: names that may be meant."""
    if not names:
        return "`diffenergy gpus show h100-sxm` lists those there are"
    return "nearest: " + ", ".join(f"`{name}`" for name in names)
