"""Flags of `diffenergy collective`."""

from typing import Annotated

from ...collectives import LinksRequest, Search
from ...requests import Argument, Flag
from .. import arguments, completing
from ..flags import Json, out_file, plot_file


class Flags(LinksRequest, Search):
    """Schedule of a collective: which GPU sends which chunk to whom and when, with a
    lower bound, energy and the standard algorithms.

    `collective verify FILE` replays the schedule in a file; a wrong one exits 2 with
    the first violation.

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
            "File to verify: our JSON or a published TE-CCL file.",
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
            "Output buffer of a GPU: B, 1GB or 64KiB; several sizes: a schedule each.",
            "SIZE[,SIZE]",
        ),
    ] = None
    no_sends: Annotated[bool, Flag("Leave the sends out of the JSON.")] = False
    plot: Annotated[
        str | None,
        plot_file(
            "Draw .png or .svg: links over time; for several sizes the bandwidth."
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
        Flag("Machine of a file to verify that names none.", "NAME", name="--topology"),
    ] = None

    @property
    def verifies(self) -> bool:
        """Whether a file is replayed instead."""
        return self.topology == "verify"

    @property
    def out_endings(self) -> tuple[str, ...]:
        """What `--out` takes."""
        return (".json",) if self.verifies else (".json", ".csv", ".xml")
