"""`Search` and `CollectiveRequest`: what a schedule of a collective is asked for."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from .. import reading
from ..hardware import GpuName
from ..requests import Flag, Note, Request, Seed, Text, Whole

_AUTO_LIMIT: Final = 10.0  # s of an idle core
_SOLVER_LIMIT: Final = 300.0  # s of an idle core
_PATIENCE, _MINUTE = 10.0, 60.0
"""Wall time over the work allowed, and s that it is at least."""
Method = Literal["auto", "milp", "lp", "rounds", "greedy"]
_NAMED: Final = ("fastest", "slowest", "continuous")


_latency = functools.partial(reading.number, unit="s")


def _epoch(flag: str, text: str) -> str | float:
    """A length in s, or its name.

    >>> _epoch("--epoch", "Fastest"), _epoch("--epoch", "2.5us")
    ('fastest', 2.5e-06)
    """
    word = text.strip().lower()
    if word in _NAMED:
        return word
    if word.isalpha():
        raise ValueError(
            f"`{flag}` is '{text}'; allowed are {', '.join(_NAMED)}, or a length in s."
        )
    return reading.seconds(flag, text)


def _word(flag: str, text: str) -> str:
    return text.strip().lower()


def _share(flag: str, text: str) -> float:
    """A share, as 0.05 or 5%.

    >>> _share("--gap", "5%")
    0.05
    """
    percent = text.strip().endswith("%")
    share = reading.number(flag, text, "%" if percent else "") / (100 if percent else 1)
    if not 0 <= share < 1:
        raise ValueError(
            f"`{flag}` is '{text}'; allowed is a share from 0 to 1, such as 0.05 or 5%."
        )
    return share


def _tenants(flag: str, text: str) -> list[list[int | str]]:
    """Groups of GPUs: numbers, names, and ranges of numbers.

    >>> _tenants("--tenants", "0-2;gpu4,6")
    [[0, 1, 2], ['gpu4', '6']]
    """
    return [_group(flag, part, text) for part in text.split(";")]


def _group(flag: str, text: str, whole: str) -> list[int | str]:
    gpus: list[int | str] = []
    for word in text.replace(",", " ").split():
        first, dash, last = word.partition("-")
        if not dash:
            gpus.append(word)
        elif first.isdecimal() and last.isdecimal() and int(first) <= int(last):
            if int(last) - int(first) > 1e5:
                raise ValueError(f"`{flag}` has {word}, which is too many GPUs.")
            gpus += range(int(first), int(last) + 1)
        else:
            raise ValueError(
                f"`{flag}` is '{whole}'; allowed are GPUs and ranges, tenants "
                "divided by semicolons: '0-3;4-7'."
            )
    return gpus


def _file(name: str) -> tuple[str, ...]:
    return (name,)


def _texts(flag: str, words: list[str]) -> tuple[str, ...]:
    return tuple(words)


_Seconds = Annotated[
    float,
    Meta(gt=0, description="allowed is above 0 s"),
    Text("S", reading.seconds, unit="s"),
]
_Share = Annotated[
    float,
    Meta(ge=0, lt=1, description="allowed is a share from 0 to below 1"),
    Text("SHARE", _share),
]


class Search(Request, kw_only=False):
    """How to look for a schedule.

    `method`: `auto` (all that help), or one alone. `epoch`: what a chunk takes on the
    fastest or slowest link, s, or `continuous`: no epochs. None: the earliest finish,
    and the fewest of the fastest epochs, if need be of two schedules. `time_limit`:
    work in all, counted in steps, as s of an idle core (None: 10; 300 of a method that
    is a solver's alone); wall time ends the search after ten times that, at least a
    minute. `gap`: stop within this share of the bound. `horizon`: most epochs allowed.
    """

    method: Annotated[
        Method, Flag("Search method: auto, milp, lp, rounds or greedy", "NAME", _word)
    ] = "auto"
    epoch: Annotated[
        str | float | None,
        Flag(
            "Epoch: fastest or slowest (time of a chunk on such a link), s, or "
            "continuous (none). With epochs, their number is minimized before the "
            "finish time [fastest].",
            "LENGTH",
            _epoch,
        ),
    ] = None
    time_limit: Annotated[
        _Seconds | None,
        "Work limit of the search in s of an idle core; wall time ends it after ten "
        "times that, at least a minute [auto, greedy: 10; else 300].",
    ] = None
    gap: Annotated[
        _Share, "Relative gap to the bound at which the search stops, as 0.05 or 5%"
    ] = 0.0
    horizon: Annotated[Whole | None, Flag("Maximum number of epochs.", "EPOCHS")] = None
    seed: Annotated[Seed, "Seed of random numbers"] = 0

    @property
    def limit(self) -> float:
        """Work limit of the whole search (s of an idle core)."""
        if self.time_limit is not None:
            return self.time_limit
        return _AUTO_LIMIT if self.method in ("auto", "greedy") else _SOLVER_LIMIT

    @property
    def wall_limit(self) -> float:
        """Wall time after which the search ends (s)."""
        return max(_PATIENCE * self.limit, _MINUTE)


class LinksRequest(Request):
    """A demand on a machine whose links may be changed."""

    chunks: Annotated[Whole | None, "Chunks in the part of a GPU [1]."] = None
    root: Annotated[
        int | str | None,
        Flag("Root of broadcast, reduce, scatter or gather [gpu0].", "GPU"),
    ] = None
    groups: Annotated[
        Sequence[Sequence[int | str]] | None,
        Flag(
            "Groups of GPUs that each run the collective at once, as '0-3;4-7'.",
            "GPUS;GPUS",
            _tenants,
            name="--tenants",
        ),
    ] = None
    matrix: Annotated[
        Any,
        Flag(
            "CSV of bytes from GPU to GPU: an uneven all_to_all.", "FILE", files=_file
        ),
    ] = None
    demand: Annotated[
        Any,
        Flag("CSV of any demand: source, chunk, bytes, wanted.", "FILE", files=_file),
    ] = None
    objective: Annotated[
        str | float,
        Flag("Objective: time, energy, or the J that a second is worth", "WHAT"),
    ] = "time"
    gpu: Annotated[
        GpuName | None, "GPU whose memory and idle power count [that of the machine]."
    ] = None
    latency: Annotated[
        float | None,
        Flag("Latency of links for which the machine has none [0.7us].", "S", _latency),
    ] = None
    disable: Annotated[
        Sequence[str],
        Flag("Remove a link, both directions; repeatable.", "A-B", _texts, many=True),
    ] = ()
    scale: Annotated[
        Sequence[str],
        Flag(
            "Multiply the rate of a link by F; repeatable.", "A-B=F", _texts, many=True
        ),
    ] = ()
    links: Annotated[
        bool, "Add the effects of each link's rate, latency and failure."
    ] = False


class CollectiveRequest(LinksRequest):
    """A collective on a machine, of names or of records."""

    topology: Annotated[Any, Note("The machine: a name, a file or a `Topology`.")] = (
        dataclasses.field(kw_only=False)
    )
    collective: Annotated[str | None, Note("Its name.")] = dataclasses.field(
        default=None, kw_only=False
    )
    size: Annotated[
        Any, Note("Output buffer of a GPU, B or text; a list plans each.")
    ] = dataclasses.field(default=None, kw_only=False)
    search: Annotated[
        Search | None, Note("How to look for a schedule [`Search()`].")
    ] = None
    watch: Annotated[
        Any, Note("Called with what is tried, and where its solver stands.")
    ] = None
