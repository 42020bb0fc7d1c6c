"""What frequency schedules save on data-centre GPUs, as the model sees it.

    python calibration/studies/schedules.py [--max-slowdown 2]

One line a GPU, model and phase: change of energy by kernel, by phase, by one pair of
clocks and by a power limit, each within the same slowdown, and time and energy of the
schedule by kernel with their 5 to 95 % intervals.
"""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

_GPUS: Final = ("a100-sxm-80gb", "h100-sxm", "h200-sxm")
_PHASES: Final = {
    "prefill": ("--batch", "4", "--input-len", "2048"),
    "decode": ("--batch", "32", "--input-len", "2048"),
    "train": ("--batch", "4", "--input-len", "2048"),
}
_MODELS: Final = ("gpt3-xl", "llama-3.1-8b", "qwen3-30b-a3b")


def schedules(
    max_slowdown: Annotated[str, typer.Option(help="percent")] = "2",
) -> None:
    """Print a Markdown table."""
    typer.echo(
        "| GPU | model | phase | kernel | phase | one pair | power limit | time "
        "(5-95 %) | energy (5-95 %) |"
    )
    typer.echo("|---|---|---|---|---|---|---|---|---|")
    for gpu in _GPUS:
        for model in _MODELS:
            for phase, flags in _PHASES.items():
                if model == "gpt3-xl":
                    flags = (*flags[:2], "--input-len", "1024")
                limit = ("--max-slowdown", max_slowdown, "--json")
                words = ("dvfs", model, "--gpu", gpu, "--phase", phase, *flags, *limit)
                typer.echo(f"| {gpu} | {model} | {phase} | {_cells(_run(words))} |")


def _run(words: tuple[str, ...]) -> dict[str, Any]:
    """JSON of a command."""
    from diffenergy.cli import main

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        code = main(words)
    if code:
        raise typer.Exit(code)
    return json.loads(text.getvalue())


def _cells(found: dict[str, Any]) -> str:
    base = found["baselines"]
    savings = [found, base["phase"], base["iteration"], base["power_limit"]]
    cells = [
        "none" if x is None else f"{x['energy_change_pct']:+.1f} %" for x in savings
    ]
    time, energy = found["time_s_p5_p95"], found["energy_j_p5_p95"]
    cells += [
        f"{1e3 * found['time_s']:.3g} ms ({1e3 * time[0]:.3g}-{1e3 * time[1]:.3g})",
        f"{found['energy_j']:.3g} J ({energy[0]:.3g}-{energy[1]:.3g})",
    ]
    return " | ".join(cells)


if __name__ == "__main__":
    typer.run(schedules)
