"""`diffenergy dvfs`: clocks for every kernel, phase or iteration."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import completing, options, output, plotting
from .flags import Flags
from .options import option
from .scheduling import answer
from .wishes import Answer, Wish

if TYPE_CHECKING:
    from rich.console import RenderableType


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("dvfs")(_dvfs)


def _dvfs(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Bundled name, Hugging Face config.json or its folder, or a .jsonl "
            "kernel listing; not with --table.",
            autocompletion=completing.models,
        ),
    ] = None,
    gpu: options.Gpu = None,
    table: Annotated[
        str | None,
        option("--table", "FILE.csv", "Measured times and energies by clock instead."),
    ] = None,
    default_clock: Annotated[
        str | None,
        option("--default-clock", "MHZ[,MHZ]", "Default clocks of a table [auto]."),
    ] = None,
    smooth: Annotated[
        bool,
        typer.Option(
            "--smooth",
            help="Readings of the table are noisy: plan on what is behind them, state "
            "a 95 % bound; needs --gpu.",
        ),
    ] = False,
    objective: Annotated[
        str, option("--objective", "WHAT", "energy, edp, ed2p or time.")
    ] = "energy",
    max_slowdown: Annotated[
        str | None,
        option(
            "--max-slowdown",
            "PERCENT",
            "Longest time against default clocks; negative asks for a speed-up; none "
            "[0 for energy, else none].",
        ),
    ] = None,
    granularity: Annotated[
        str,
        option(
            "--granularity", "WHAT", "Own clocks for each kernel, phase, iteration."
        ),
    ] = "kernel",
    aggregation: Annotated[
        str,
        option(
            "--aggregation",
            "WHAT",
            "global: the sum keeps the limit; local: each does.",
        ),
    ] = "global",
    per_launch: Annotated[
        bool,
        typer.Option("--per-launch", help="Launches of one kernel may differ."),
    ] = False,
    switch_latency: Annotated[
        str | None,
        option(
            "--switch-latency",
            "SECONDS",
            "What a change of clocks takes, or `published` [0].",
        ),
    ] = None,
    switch_energy: Annotated[
        str | None, option("--switch-energy", "JOULES", "Energy of a change [0].")
    ] = None,
    switch_kind: Annotated[
        str,
        option(
            "--switch-kind",
            "KIND",
            "stall: the GPU waits; lookahead: requests go ahead, clocks hold so long.",
        ),
    ] = "stall",
    solver: Annotated[
        str,
        option("--solver", "WHICH", "exact, or descent (gradients through the model)."),
    ] = "exact",
    seed: Annotated[
        str | None, option("--seed", "N", "Where the descent starts [0].")
    ] = None,
    starts: Annotated[
        str | None, option("--starts", "N", "How many starts of the descent [8].")
    ] = None,
    power_curve: Annotated[
        bool,
        typer.Option("--power-curve", help="Also time and energy by power limit."),
    ] = False,
    workload: options.Workload = None,
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
        option("--sm-clock", "MHZ[,MHZ...]", "SM clocks to choose from [all steps]."),
    ] = None,
    mem_clock: Annotated[
        str | None,
        option("--mem-clock", "MHZ[,MHZ...]", "Memory clocks to choose from [all]."),
    ] = None,
    power_limit: Annotated[
        str | None, option("--power-limit", "W", "Power limit of the GPU [TDP].")
    ] = None,
    temperature: options.Temperature = None,
    set_field: options.SetField = None,
    corrections: options.Corrections = None,
    plot: plotting.Plot = None,
    as_json: options.AsJson = False,
    out: Annotated[
        str | None,
        option("--out", "FILE", "Also write .json, .csv, or .py (applies the clocks)."),
    ] = None,
):
    """Clocks for every kernel of MODEL or of a measured table: less energy, same time.

    Time and energy are those of one iteration against default clocks, beside the best
    single pair of clocks, the best per phase and a power limit, with the bound that no
    schedule can pass.

    \b
    Examples:
      diffenergy dvfs llama-3.1-8b --gpu a100-pcie-40gb --phase decode --batch 8
      diffenergy dvfs gpt3-xl --phase train --gpu h100-sxm --max-slowdown 2 --json
    """
    given = dict(locals())
    names = Wish.__dataclass_fields__
    wish = Wish(**{name: given.pop(name) for name in names})
    picture = given.pop("plot")
    given["set_field"] = tuple(set_field or ())
    given["model"] = model or ""
    if not model and table is None:
        raise ValueError("MODEL is missing; name one, or give a measured `--table`.")
    run(Flags(**given), wish, picture)


def run(flags: Flags, wish: Wish, plot: str | None):
    """Plans, prints, draws and writes what the flags ask for."""
    output.writer(flags.out, _writers(None, wish))
    plotting.check(plot, [*flags.inputs, *([wish.table] if wish.table else [])])
    found = answer(flags, wish)
    output.save(flags.out, _writers(found, wish), inputs=found.inputs)
    if plot is not None:
        from ..report._charts.pictures import save_schedule_picture

        save_schedule_picture(
            plot, found.problem, found.plan, found.summary, _title(found), found.inputs
        )
    output.show(found.summary, flags.as_json, lambda: _tables(found))
    output.notes([*found.notes, *_unrealistic(found, flags, wish)])


def _unrealistic(found: Answer, flags: Flags, wish: Wish) -> list[str]:
    """What keeps a script from being followed."""
    script = (flags.out or "").lower().endswith(".py")
    if not script or wish.granularity != "kernel" or found.latency > 0:
        return []
    return [
        "the script changes clocks between kernels as if that took no time; plan with "
        "`--switch-latency published --switch-kind lookahead`, or by phase."
    ]


def _title(found: Answer) -> str:
    """What was scheduled, in one line."""
    from ..report._tables.estimates import title_line

    summary = found.summary
    if "table" in summary:
        return f"measured: {summary['table']}"
    return f"{title_line(summary)} ({summary['grade']})"


def _tables(found: Answer) -> Iterable["RenderableType"]:
    from ..dvfs._apply.export import schedule_rows
    from ..report._tables.estimates import (
        BOARD_ONLY,
        assumed_line,
        grade_line,
        title_line,
    )
    from ..report._tables.schedules import schedule_parts

    summary = found.summary
    parts = schedule_parts(summary, schedule_rows(found.problem, found.plan))
    if "table" in summary:
        return [f"measured: {summary['table']}", *parts]
    head = [assumed_line(summary), title_line(summary)]
    return [*head, *parts, grade_line(summary), BOARD_ONLY]


def _writers(found: Answer | None, wish: Wish) -> output.Writers:
    """Texts by ending; `found` None only lists the endings."""

    def done() -> Answer:
        assert found is not None
        return found

    def rows() -> str:
        from ..dvfs._apply.export import schedule_csv

        return schedule_csv(done().problem, done().plan, done().default_clock)

    def script() -> str:
        from ..dvfs._apply.script import apply_script

        title: Any = done().summary.get("model") or wish.table
        granularity: Any = wish.granularity
        return apply_script(
            done().problem, done().plan, granularity, done().latency, title
        )

    return {
        ".json": lambda: output.json_text(done().summary),
        ".csv": rows,
        ".py": script,
    }
