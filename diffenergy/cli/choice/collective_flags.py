"""Flags of `diffenergy collective`."""

import dataclasses
import functools
from typing import Final

from .. import completing
from ..parsing import read, shared
from ..parsing.field import argument, as_json, option, out, plot, repeated, switch

_NAMED: Final = ("fastest", "slowest", "continuous")


_latency = functools.partial(read.number, unit="s")


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
    return read.seconds(flag, text)


def _word(flag: str, text: str) -> str:
    return text.strip().lower()


def _share(flag: str, text: str) -> float:
    """A share, as 0.05 or 5%.

    >>> _share("--gap", "5%")
    0.05
    """
    percent = text.strip().endswith("%")
    share = read.number(flag, text, "%" if percent else "") / (100 if percent else 1)
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """When which GPU sends what to whom: least time, with a lower bound, energy and the
    standard algorithms beside it.

    `collective verify FILE` replays the schedule in a file and exits 2 with the first
    thing that is wrong.

    \b
    Examples:
      diffenergy collective ndv2-2 --collective all_gather --size 1GB
      diffenergy collective dgx-h100-2 --collective all_reduce --size 64MB --json
    """

    topology: str = argument(
        "Machine: a bundled name, a .toml file or the text of `nvidia-smi topo -m`; or "
        "the word verify.",
        metavar="TOPOLOGY|verify",
        completed=completing.topologies,
        files=shared.file,
    )
    file: str | None = argument(
        "Of verify: our JSON, a published TE-CCL file or MSCCL XML.",
        metavar="[FILE]",
        needed=False,
        files=shared.file,
    )
    collective: str | None = option(
        "NAME",
        "all_gather, all_to_all, reduce_scatter, all_reduce, broadcast, reduce, "
        "scatter or gather.",
    )
    size: str | None = option(
        "SIZE[,SIZE]",
        "Output buffer of a GPU in B, or as 1GB, 64KiB; several: a schedule for each.",
    )
    chunks: int | None = option(
        "N", "Chunks that a GPU's part is cut into [1].", read.whole
    )
    root: str | None = option("GPU", "Of broadcast, reduce, scatter and gather [gpu0].")
    matrix: str | None = option(
        "FILE", "Uneven all_to_all: CSV of bytes from GPU to GPU.", files=shared.file
    )
    demand: str | None = option(
        "FILE", "Any demand: CSV of source, chunk, bytes, wanted.", files=shared.file
    )
    groups: list[list[int | str]] | None = option(
        "GPUS;GPUS",
        "Groups of GPUs that each run the collective at once, as '0-3;4-7'.",
        _tenants,
        name="--tenants",
    )
    method: str | None = option(
        "NAME", "auto, milp, lp, rounds or greedy [auto].", _word
    )
    epoch: str | float | None = option(
        "LENGTH",
        "fastest or slowest (what a chunk takes on such a link), or s: fewest epochs "
        "come before the earliest finish; continuous: none [fastest, but the earliest "
        "finish].",
        _epoch,
    )
    time_limit: float | None = option(
        "S",
        "Work of the whole search, as s of an idle core; wall time ends it after ten "
        "times that, at least a minute [auto: 10; else 300].",
        read.seconds,
    )
    solver: str | None = option(
        "NAME", "cp-sat, glop, pdlp, highs or scip [the method's own].", _word
    )
    gap: float | None = option(
        "SHARE", "Stop this near to the bound, as 0.05 or 5% [0].", _share
    )
    objective: str | None = option(
        "WHAT", "time, energy, or a number of J per s of finish time [time]."
    )
    latency: float | None = option(
        "S", "Of links whose latency the machine leaves open [0.7us].", _latency
    )
    horizon: int | None = option("EPOCHS", "Most epochs that it may take.", read.whole)
    disable: tuple[str, ...] = repeated(
        "A-B", "Without this link, both directions; repeatable."
    )
    scale: tuple[str, ...] = repeated("A-B=F", "This link F times as fast; repeatable.")
    gpu: str | None = option(
        "NAME",
        "GPU whose memory and idle power count [machine's].",
        completed=completing.gpus,
        files=shared.file,
    )
    links: bool = switch(
        "Also what each link's rate, latency and failure do to the finish."
    )
    seed: int | None = option("N", "Of all draws [0].", read.seed)
    no_sends: bool = switch("Leave the sends out of the JSON.")
    plot: str | None = plot(
        "Draw .png or .svg: links over time; of several sizes the bandwidth."
    )
    as_json: bool = as_json()
    out: str | None = out(
        "Also write .json, .csv (sends) or .xml (for MSCCL).", ".json", ".csv", ".xml"
    )
    machine: str | None = option(
        "NAME", "Of verify: machine of a file that names none.", name="--topology"
    )

    @property
    def verifies(self) -> bool:
        """Whether a file is replayed instead."""
        return self.topology == "verify"

    @property
    def out_endings(self) -> tuple[str, ...]:
        """What `--out` takes."""
        return (".json",) if self.verifies else (".json", ".csv", ".xml")
