"""`diffenergy collective`: schedules of collectives on many GPUs, and their proof."""

import dataclasses
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import INTERRUPTED, completing, output
from .collecting import Answer, answers
from .collective_flags import CollectiveFlags
from .options import option
from .plotting import check
from .progress import stages

if TYPE_CHECKING:
    from rich.console import RenderableType


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("collective")(_collective)


def _collective(
    topology: Annotated[
        str,
        typer.Argument(
            metavar="TOPOLOGY|verify",
            help="Machine: a bundled name, a .toml file or the text of `nvidia-smi "
            "topo -m`; or the word verify.",
            autocompletion=completing.topologies,
        ),
    ],
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="Of verify: our JSON, a published TE-CCL file or MSCCL XML.",
        ),
    ] = None,
    collective: Annotated[
        str | None,
        option(
            "--collective",
            "NAME",
            "all_gather, all_to_all, reduce_scatter, all_reduce, broadcast, reduce, "
            "scatter or gather.",
        ),
    ] = None,
    size: Annotated[
        str | None,
        option(
            "--size",
            "SIZE[,SIZE]",
            "Output buffer of a GPU, as 1GB or 64KB (decimal); several: a schedule "
            "for each.",
        ),
    ] = None,
    chunks: Annotated[
        str | None, option("--chunks", "N", "Chunks that a GPU's part is cut into [1].")
    ] = None,
    root: Annotated[
        str | None,
        option("--root", "GPU", "Of broadcast, reduce, scatter and gather [gpu0]."),
    ] = None,
    matrix: Annotated[
        str | None,
        option("--matrix", "FILE", "Uneven all_to_all: CSV of bytes from GPU to GPU."),
    ] = None,
    demand: Annotated[
        str | None,
        option("--demand", "FILE", "Any demand: CSV of source, chunk, bytes, wanted."),
    ] = None,
    tenants: Annotated[
        str | None,
        option(
            "--tenants",
            "GPUS;GPUS",
            "Groups of GPUs that each run the collective at once, as '0-3;4-7'.",
        ),
    ] = None,
    method: Annotated[
        str | None,
        option("--method", "NAME", "auto, milp, lp, rounds or greedy [auto]."),
    ] = None,
    epoch: Annotated[
        str | None,
        option(
            "--epoch",
            "LENGTH",
            "fastest or slowest (what a chunk takes on such a link), or s: fewest "
            "epochs come before the earliest finish; continuous: none [fastest, but "
            "the earliest finish].",
        ),
    ] = None,
    time_limit: Annotated[
        str | None,
        option("--time-limit", "S", "Of the whole search [auto: 10; else 300]."),
    ] = None,
    solver: Annotated[
        str | None,
        option(
            "--solver", "NAME", "cp-sat, glop, pdlp, highs or scip [the method's own]."
        ),
    ] = None,
    gap: Annotated[
        str | None,
        option("--gap", "SHARE", "Stop this near to the bound, as 0.05 or 5% [0]."),
    ] = None,
    objective: Annotated[
        str | None,
        option(
            "--objective",
            "WHAT",
            "time, energy, or a number of J per s of finish time [time].",
        ),
    ] = None,
    latency: Annotated[
        str | None,
        option(
            "--latency", "S", "Of links whose latency the machine leaves open [0.7e-6]."
        ),
    ] = None,
    horizon: Annotated[
        str | None, option("--horizon", "EPOCHS", "Most epochs that it may take.")
    ] = None,
    disable: Annotated[
        list[str] | None,
        option("--disable", "A-B", "Without this link, both directions; repeatable."),
    ] = None,
    scale: Annotated[
        list[str] | None,
        option("--scale", "A-B=F", "This link F times as fast; repeatable."),
    ] = None,
    gpu: Annotated[
        str | None,
        option(
            "--gpu",
            "NAME",
            "GPU whose memory and idle power count [machine's].",
            completing.gpus,
        ),
    ] = None,
    links: Annotated[
        bool,
        typer.Option(
            "--links",
            help="Also what each link's rate, latency and failure do to the finish.",
        ),
    ] = False,
    seed: Annotated[str | None, option("--seed", "N", "Of all draws [0].")] = None,
    no_sends: Annotated[
        bool, typer.Option("--no-sends", help="Leave the sends out of the JSON.")
    ] = False,
    plot: Annotated[
        str | None,
        option(
            "--plot",
            "FILE",
            "Draw .png or .svg: links over time; of several sizes the bandwidth.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
    out: Annotated[
        str | None,
        option("--out", "FILE", "Also write .json, .csv (sends) or .xml (for MSCCL)."),
    ] = None,
    machine: Annotated[
        str | None,
        option("--topology", "NAME", "Of verify: machine of a file that names none."),
    ] = None,
):
    """When which GPU sends what to whom: least time, with a lower bound, energy and the
    standard algorithms beside it.

    `collective verify FILE` replays the schedule in a file and exits 2 with the first
    thing that is wrong.

    \b
    Examples:
      diffenergy collective ndv2-2 --collective all_gather --size 1GB
      diffenergy collective dgx-h100-2 --collective all_reduce --size 64MB --json
    """
    given = dict(locals())
    for name in ("file", "plot", "as_json", "out", "machine"):
        given.pop(name)
    given["disable"] = tuple(disable or ())
    given["scale"] = tuple(scale or ())
    flags = CollectiveFlags(**given)
    if topology == "verify":
        _verify(flags, file, machine, as_json, out, plot)
        return
    if file is not None:
        raise ValueError(
            f"'{file}' stands behind the topology; files are checked by `diffenergy "
            "collective verify FILE`."
        )
    if machine is not None:
        raise ValueError(
            f"`--topology` is '{machine}', which only verify takes; the machine here "
            f"is '{topology}'."
        )
    run(flags, as_json, out, plot)


def run(flags: CollectiveFlags, as_json: bool, out: str | None, plot: str | None):
    """Plans, prints, draws and writes what the flags ask for."""
    ending = output.writer(out, _writers([]))
    if ending == ".xml" and (flags.matrix or flags.demand or flags.tenants):
        raise ValueError(
            f"`--out` is '{out}', but MSCCL has plain collectives alone; write .json "
            "or .csv."
        )
    check(plot, flags.inputs)
    from ..collectives._planning.plan import OutOfReach

    try:
        with stages() as watch:
            found = answers(flags, watch)
    except OutOfReach as error:
        raise output.Infeasible(str(error)) from None
    output.save(out, _writers(found), inputs=flags.inputs)
    if plot is not None:
        _draw(plot, flags, found)
    summaries = [answer.summary for answer in found]
    content: Any = summaries if "," in (flags.size or "") else summaries[0]
    output.show(content, as_json, lambda: _tables(found))
    if found[-1].plan.interrupted:
        print("diffenergy: interrupted; the best so far is shown.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _tables(found: list[Answer]) -> Iterable["RenderableType"]:
    from ..report._tables.collectives import collective_parts, sizes_parts

    if len(found) == 1:
        return collective_parts(found[0].summary)
    return sizes_parts([answer.summary for answer in found])


def _draw(plot: str, flags: CollectiveFlags, found: list[Answer]):
    """One schedule on its links, or bandwidth by size."""
    from ..report._charts import plot_collective
    from ..report._tables.collectives import bandwidth_lines, title_line

    if len(found) == 1:
        plan = found[0].plan
        others = {name: b.finish for name, b in found[0].baselines.found.items()}
        title = title_line(found[0].summary)
        plot_collective.save_collective_picture(
            plot, plan.schedule, plan.bound, others, title, inputs=flags.inputs
        )
        return
    summaries = [answer.summary for answer in found]
    sizes = [summary["output_buffer_bytes"] for summary in summaries]
    first = summaries[0]
    title = f"{first['collective'].replace('_', '-')} on {first['topology']}"
    plot_collective.save_bandwidth_picture(
        plot, sizes, bandwidth_lines(summaries), title, inputs=flags.inputs
    )


def _writers(found: list[Answer]) -> output.Writers:
    """Texts by ending; an empty list only names the endings."""

    def sends() -> str:
        from ..collectives._formats.export import sends_csv

        return sends_csv(_only(found).plan.schedule)

    def program() -> str:
        from ..collectives._formats.msccl import msccl_xml

        return msccl_xml(_only(found).plan.schedule)

    def summary() -> str:
        all_ = [answer.summary for answer in found]
        return output.json_text(all_ if len(all_) > 1 else all_[0])

    return {".json": summary, ".csv": sends, ".xml": program}


def _only(found: list[Answer]) -> Answer:
    if len(found) > 1:
        raise ValueError(
            f"`--out` takes one schedule in such a file, and there are {len(found)} "
            "sizes; give one --size, or write .json."
        )
    return found[0]


def _verify(
    flags: CollectiveFlags,
    file: str | None,
    machine: str | None,
    as_json: bool,
    out: str | None,
    plot: str | None,
):
    """Replays the schedule in a file."""
    if file is None:
        raise ValueError(
            "`collective verify` lacks a file; give JSON of `collective --json`, a "
            "published TE-CCL file or MSCCL XML."
        )
    given = ("latency", "gpu") if machine is not None else ()
    allowed = (*given, "size") if file.lower().endswith(".xml") else given
    for field in dataclasses.fields(flags):
        value = getattr(flags, field.name)
        if field.name not in ("topology", *allowed) and value:
            name = field.name.replace("_", "-")
            raise ValueError(
                f"`--{name}` is no option of verify here (--size goes with .xml, "
                "--latency and --gpu with --topology); leave it out."
            )
    from ..collectives._demand.demands import parse_size
    from ..collectives._formats.verify_file import verify_file
    from ..report._tables.collectives import verified_json, verified_parts

    writers = {".json": lambda: output.json_text(content)}
    output.writer(out, writers)
    check(plot, [file])
    topology = None
    if machine is not None:
        topology = dataclasses.replace(flags, topology=machine).machine()
    checked = verify_file(file, topology, parse_size(flags.size or "1GB"))
    content = verified_json(file, checked)
    output.save(out, writers, inputs=[file])
    if plot is not None:
        from ..report._charts.plot_collective import save_collective_picture

        save_collective_picture(plot, checked.schedule, inputs=[file])
    output.show(content, as_json, lambda: verified_parts(content))
