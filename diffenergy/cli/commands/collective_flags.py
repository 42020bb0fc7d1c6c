"""Flags of `diffenergy collective`."""

from typing import Annotated

from ...collectives import LinksRequest, Search
from ...requests import Argument, Flag
from .. import arguments, completing
from ..flags import Json, out_file, plot_file


class Flags(LinksRequest, Search):
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
            files=arguments.file,
        ),
    ]
    file: Annotated[
        str | None,
        Argument(
            "Of verify: our JSON or a published TE-CCL file.",
            metavar="[FILE]",
            files=arguments.file,
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
