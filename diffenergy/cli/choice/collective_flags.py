"""Flags of `diffenergy collective`."""

import functools
from typing import Annotated, Final

from ...hardware import gpu_names
from ...requests import Argument, File, Flag, Request, Seed, Whole
from ...requests import reading as read
from .. import completing
from ..parsing import shared
from ..parsing.field import Json, out_file, plot_file

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


class Flags(Request):
    """When which GPU sends what to whom: least time, with a lower bound, energy and the
    standard algorithms beside it.

    `collective verify FILE` replays the schedule in a file and exits 2 with the first
    thing that is wrong.

    \b
    Examples:
      diffenergy collective ndv2-2 --collective all_gather --size 1GB
      diffenergy collective dgx-h100-2 --collective all_reduce --size 64MB --json
    """

    topology: Annotated[
        str,
        Argument(
            "Machine: a bundled name, a .toml file or the text of "
            "`nvidia-smi topo -m`; or the word verify.",
            metavar="TOPOLOGY|verify",
            completed=completing.topologies,
            files=shared.file,
        ),
    ]
    file: Annotated[
        str | None,
        Argument(
            "Of verify: our JSON, a published TE-CCL file or MSCCL XML.",
            metavar="[FILE]",
            files=shared.file,
        ),
    ] = None
    collective: Annotated[
        str | None,
        Flag(
            "all_gather, all_to_all, reduce_scatter, all_reduce, broadcast,"
            " reduce, scatter or gather.",
            "NAME",
        ),
    ] = None
    size: Annotated[
        str | None,
        Flag(
            "Output buffer of a GPU in B, or as 1GB, 64KiB; several: a "
            "schedule for each.",
            "SIZE[,SIZE]",
        ),
    ] = None
    chunks: Annotated[
        Whole | None, Flag("Chunks that a GPU's part is cut into [1].")
    ] = None
    root: Annotated[
        str | None, Flag("Of broadcast, reduce, scatter and gather [gpu0].", "GPU")
    ] = None
    matrix: Annotated[
        File | None, Flag("Uneven all_to_all: CSV of bytes from GPU to GPU.")
    ] = None
    demand: Annotated[
        File | None, Flag("Any demand: CSV of source, chunk, bytes, wanted.")
    ] = None
    groups: Annotated[
        list[list[int | str]] | None,
        Flag(
            "Groups of GPUs that each run the collective at once, as '0-3;4-7'.",
            "GPUS;GPUS",
            _tenants,
            name="--tenants",
        ),
    ] = None
    method: Annotated[
        str | None, Flag("auto, milp, lp, rounds or greedy [auto].", "NAME", _word)
    ] = None
    epoch: Annotated[
        str | float | None,
        Flag(
            "fastest or slowest (what a chunk takes on such a link), or s: "
            "fewest epochs come before the earliest finish; continuous: "
            "none [fastest, but the earliest finish].",
            "LENGTH",
            _epoch,
        ),
    ] = None
    time_limit: Annotated[
        float | None,
        Flag(
            "Work of the whole search, as s of an idle core; wall time ends"
            " it after ten times that, at least a minute [auto: 10; else "
            "300].",
            "S",
            read.seconds,
        ),
    ] = None
    solver: Annotated[
        str | None,
        Flag("cp-sat, glop, pdlp, highs or scip [the method's own].", "NAME", _word),
    ] = None
    gap: Annotated[
        float | None,
        Flag("Stop this near to the bound, as 0.05 or 5% [0].", "SHARE", _share),
    ] = None
    objective: Annotated[
        str | None,
        Flag("time, energy, or a number of J per s of finish time [time].", "WHAT"),
    ] = None
    latency: Annotated[
        float | None,
        Flag("Of links whose latency the machine leaves open [0.7us].", "S", _latency),
    ] = None
    horizon: Annotated[
        Whole | None, Flag("Most epochs that it may take.", "EPOCHS")
    ] = None
    disable: Annotated[
        tuple[str, ...],
        Flag("Without this link, both directions; repeatable.", "A-B", many=True),
    ] = ()
    scale: Annotated[
        tuple[str, ...],
        Flag("This link F times as fast; repeatable.", "A-B=F", many=True),
    ] = ()
    gpu: Annotated[
        File | None,
        Flag(
            "GPU whose memory and idle power count [machine's].",
            "NAME",
            completed=gpu_names,
        ),
    ] = None
    links: Annotated[
        bool, Flag("Also what each link's rate, latency and failure do to the finish.")
    ] = False
    seed: Annotated[Seed | None, Flag("Of all draws [0].")] = None
    no_sends: Annotated[bool, Flag("Leave the sends out of the JSON.")] = False
    plot: Annotated[
        str | None,
        plot_file(
            "Draw .png or .svg: links over time; of several sizes the bandwidth."
        ),
    ] = None
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file(
            "Also write .json, .csv (sends) or .xml (for MSCCL).",
            ".json",
            ".csv",
            ".xml",
        ),
    ] = None
    machine: Annotated[
        str | None,
        Flag(
            "Of verify: machine of a file that names none.", "NAME", name="--topology"
        ),
    ] = None

    @property
    def verifies(self) -> bool:
        """Whether a file is replayed instead."""
        return self.topology == "verify"

    @property
    def out_endings(self) -> tuple[str, ...]:
        """What `--out` takes."""
        return (".json",) if self.verifies else (".json", ".csv", ".xml")
