"""`diffenergy codesign`: tiles, clocks and hardware by gradient descent."""

import dataclasses
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import INTERRUPTED, completing, options, output, plotting
from .design_wishes import Wish
from .designing import Answer, Mix, answer, mix_of
from .flags import Flags
from .options import option

if TYPE_CHECKING:
    from rich.console import RenderableType


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("codesign")(_codesign)


def _codesign(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Bundled name, Hugging Face config.json or its folder, or a .jsonl "
            "kernel listing; may be left out beside --workload.",
            autocompletion=completing.models,
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        option(
            "--gpu",
            "NAME",
            "GPU that designs grow out of, name or .toml file [h100-sxm].",
            completing.gpus,
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        option(
            "--vary",
            "FIELD[=LOW:HIGH],...",
            "What may change: fields of a GPU file, sm_clock, mem_clock, power_cap, "
            "tiles; bounds in SI [half to twice the base value; clocks and tiles: "
            "what is legal].",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        option(
            "--objective",
            "WHAT[,WHAT]",
            "energy, time, edp, ed2p, energy_per_token, area or cost; several single "
            "ones: their Pareto front [energy; --tune-tiles: time].",
        ),
    ] = None,
    max_latency: Annotated[
        str | None, option("--max-latency", "S", "Time of the workload, at most.")
    ] = None,
    max_power: Annotated[
        str | None, option("--max-power", "W", "Mean power, at most.")
    ] = None,
    max_area: Annotated[
        str | None, option("--max-area", "MM2", "Area of the die, at most.")
    ] = None,
    max_ttft: Annotated[
        str | None, option("--max-ttft", "S", "Time to the first token, at most.")
    ] = None,
    max_tpot: Annotated[
        str | None, option("--max-tpot", "S", "Time per output token, at most.")
    ] = None,
    price: Annotated[
        str | None, option("--price", "PER_MM2", "Price of a mm2 of silicon.")
    ] = None,
    max_cost: Annotated[
        str | None, option("--max-cost", "C", "Area times --price, at most.")
    ] = None,
    workload: Annotated[
        list[str] | None,
        option(
            "--workload",
            '"MODEL FLAGS"',
            "Another workload of the mix, quoted with its flags of estimate; "
            "repeatable. The bare name of a workload picks it from the listing MODEL.",
        ),
    ] = None,
    weight: Annotated[
        list[str] | None,
        option(
            "--weight",
            "W",
            "How often a workload runs, one for each --workload in their order [1]; "
            "one more: the first is MODEL's [1].",
        ),
    ] = None,
    seed: Annotated[str | None, option("--seed", "N", "Of all draws [0].")] = None,
    starts: Annotated[
        str | None, option("--starts", "N", "Descents at once [8].")
    ] = None,
    rounds: Annotated[
        str | None, option("--rounds", "N", "Rounds of ten gradient steps [12].")
    ] = None,
    tune_tiles: Annotated[
        bool,
        typer.Option(
            "--tune-tiles",
            help="Instead: the best legal tile of every matrix product on this GPU.",
        ),
    ] = False,
    batch: options.Batch = None,
    input_len: options.InputLen = None,
    output_len: options.OutputLen = None,
    phase: options.Phase = None,
    dtype: options.Dtype = None,
    kv_dtype: options.KvDtype = None,
    attention: options.Attention = None,
    stack: options.Stack = None,
    dispatch: options.Dispatch = None,
    accumulation: options.Accumulation = None,
    checkpointing: options.Checkpointing = False,
    sm_clock: Annotated[
        str | None,
        option("--sm-clock", "MHZ", "Clock that designs run at [their highest]."),
    ] = None,
    mem_clock: Annotated[
        str | None, option("--mem-clock", "MHZ", "Memory clock [their own].")
    ] = None,
    power_limit: Annotated[
        str | None, option("--power-limit", "W", "Power limit [their TDP].")
    ] = None,
    temperature: options.Temperature = None,
    set_field: options.SetField = None,
    corrections: options.Corrections = None,
    plot: plotting.Plot = None,
    as_json: options.AsJson = False,
    out: Annotated[
        str | None,
        option(
            "--out",
            "FILE",
            "Also write .toml (a GPU file, with a .json beside it) or .json (with the "
            "path of the search); of --tune-tiles .json or .jsonl (the listing).",
        ),
    ] = None,
):
    """Hardware, clocks and tiles that MODEL, or a mix, costs least on.

    Gradients through the model lead from many starts to designs that hardware can
    have, within the limits; every figure is an exact estimate. Ctrl-C keeps the best
    so far.

    \b
    Examples:
      diffenergy codesign llama-3.1-8b --vary num_sms,dram_bandwidth,sm_clock
      diffenergy codesign gpt2 --gpu a100-sxm-80gb --tune-tiles --objective energy
    """
    given = dict(locals())
    given["mix"] = given.pop("workload")
    picture = given.pop("plot")
    wished = {f.name: given.pop(f.name) for f in dataclasses.fields(Wish)}
    for name in ("vary", "mix", "weight"):
        wished[name] = tuple(wished[name] or ())
    given["set_field"] = tuple(set_field or ())
    given["model"] = model or ""
    run(Flags(**given), Wish(**wished), picture)


def run(flags: Flags, wish: Wish, plot: str | None = None):
    """Searches, prints, draws and writes what the flags ask for."""
    output.writer(flags.out, _writers(None, wish, ""))
    wish.check(flags)
    mix = mix_of(flags, wish)
    _check_targets(flags.out, mix)
    plotting.check(plot, mix.inputs)
    found = answer(flags, wish, mix)
    _save(flags.out, found, wish, mix)
    _draw(plot, found, mix)
    output.show(found.summary, flags.as_json, lambda: _tables(found))
    output.notes([*found.notes, *_unwritten(flags.out, found)])
    if found.interrupted:
        kept = f" and written to '{flags.out}'" if flags.out else ""
        line = f"interrupted; the best design so far is shown{kept}."
        print(f"diffenergy: {line}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _unwritten(out: str | None, found: Answer) -> list[str]:
    """What a GPU file cannot hold, and how to ask for it."""
    if not (out or "").lower().endswith(".toml"):
        return []
    from ..codesign._space.axes import TILES

    flags = {
        "sm_clock": ("--sm-clock", 1e-6),
        "mem_clock": ("--mem-clock", 1e-6),
        "power_cap": ("--power-limit", 1.0),
    }
    fields = found.summary["best"]["fields"]
    asked = [
        f"{flag} {fields[name] * scale:g}"
        for name, (flag, scale) in flags.items()
        if name in fields
    ]
    lacking = [f"`{' '.join(asked)}`"] if asked else []
    lacking += ["the tiles of its JSON"] if TILES in fields else []
    if not lacking:
        return []
    return [
        f"'{out}' is the hardware alone; the design runs with {' and '.join(lacking)}."
    ]


def _beside(out: str) -> str:
    """The JSON beside a GPU file."""
    return str(Path(out).with_suffix(".json"))


def _check_targets(out: str | None, mix: Mix):
    """Finds what cannot be written before time is spent."""
    from ..files import check_target

    if out is None:
        return
    check_target(out, mix.inputs)
    if out.lower().endswith(".toml"):
        check_target(_beside(out), mix.inputs)


def _save(out: str | None, found: Answer, wish: Wish, mix: Mix):
    """Writes the outputs; the JSON beside a GPU file first."""
    if out is None:
        return
    writers = _writers(found, wish, Path(out).stem)
    if out.lower().endswith(".toml"):
        output.save(_beside(out), writers, inputs=mix.inputs)
    output.save(out, writers, inputs=mix.inputs)


def _draw(plot: str | None, found: Answer, mix: Mix):
    """Writes the picture of the designs or tiles."""
    if plot is None:
        return
    from ..report._charts import style
    from ..report._charts.plot_design import design_figure
    from ..report._charts.plot_tiles import tiles_figure
    from ..report._summaries.design_summary import path_json

    def figure():
        if found.found is None:
            return tiles_figure(found.summary)
        return design_figure(found.summary, path_json(found.found))

    style.save_figure(plot, figure, mix.inputs)


def _writers(found: Answer | None, wish: Wish, name: str) -> output.Writers:
    """Texts by ending; `found` None only lists the endings."""

    def done() -> Answer:
        assert found is not None
        return found

    def design() -> str:
        from ..codesign._problem.card import design_card
        from ..hardware._writing import gpu_toml

        problem, search = done().problem, done().found
        assert problem is not None and search is not None
        name_or_design = name.strip() or "design"
        return gpu_toml(design_card(done().card, problem, search.best, name_or_design))

    def everything() -> str:
        from ..report._summaries.design_summary import path_json

        search = done().found
        path = {} if search is None else {"path": path_json(search)}
        return output.json_text({**done().summary, **path})

    def listing() -> str:
        from ..workload._listing import listing_lines

        tuning = done().tuning
        assert tuning is not None
        return listing_lines(tuning.listings)

    writers: dict[str, Callable[[], str]] = {".json": everything}
    return writers | ({".jsonl": listing} if wish.tune_tiles else {".toml": design})


def _tables(found: Answer) -> Iterable["RenderableType"]:
    from ..report._tables.designs import design_parts
    from ..report._tables.estimates import (
        BOARD_ONLY,
        assumed_line,
        grade_line,
        title_line,
    )
    from ..report._tables.tiles import tiles_parts

    summary: dict[str, Any] = found.summary
    members = summary.get("workloads", [summary])
    head = []
    for member in members:
        times = f"{member['weight']:g} x " if "weight" in member else ""
        head += [assumed_line(member), times + title_line(member)]
    tuned = found.tuning is not None
    parts = tiles_parts(summary) if tuned else design_parts(summary)
    return [*head, *parts, grade_line(summary), BOARD_ONLY]
