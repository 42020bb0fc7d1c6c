"""What frequency schedules save on data-centre GPUs, as the model sees it.

    python calibration/studies/schedules.py [--max-slowdown 2]

One line a GPU, model and phase: change of energy by kernel, by phase, by one pair of
clocks and by a power limit, each within the same slowdown, and time and energy of the
schedule by kernel with their 5 to 95 % intervals.
"""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

_GPUS: Final = ("a100-sxm-80gb", "h100-sxm", "h200-sxm")
_PHASES: Final[dict[str, dict[str, Any]]] = {
    "prefill": {"batch": 4, "input_len": 2048},
    "decode": {"batch": 32, "input_len": 2048},
    "train": {"batch": 4, "input_len": 2048},
}
_MODELS: Final = ("gpt3-xl", "llama-3.1-8b", "qwen3-30b-a3b")


def schedules(
    max_slowdown: Annotated[float, typer.Option(help="percent")] = 2.0,
) -> None:
    """Print a Markdown table."""
    from diffenergy.dvfs import Switching, plan
    from diffenergy.estimator import start_jax

    start_jax()
    typer.echo(
        "| GPU | model | phase | kernel | phase | one pair | power limit | time "
        "(5-95 %) | energy (5-95 %) |"
    )
    typer.echo("|---|---|---|---|---|---|---|---|---|")
    for gpu in _GPUS:
        for model in _MODELS:
            for phase, request in _PHASES.items():
                options: dict[str, Any] = {
                    "phase": phase, "max_slowdown": max_slowdown, **request
                }  # fmt: skip
                options["switching"] = Switching()  # changes are free
                if model == "gpt3-xl":
                    options["input_len"] = 1024
                result = plan(model, gpu, **options)
                typer.echo(f"| {gpu} | {model} | {phase} | {_cells(result.summary)} |")


def _cells(summary: dict[str, Any]) -> str:
    base = summary["baselines"]
    savings = [summary, base["phase"], base["iteration"], base["power_limit"]]
    cells = [
        "none" if x is None else f"{x['energy_change_pct']:+.1f} %" for x in savings
    ]
    time, energy = summary["time_s_p5_p95"], summary["energy_j_p5_p95"]
    cells += [
        f"{1e3 * summary['time_s']:.3g} ms ({1e3 * time[0]:.3g}-{1e3 * time[1]:.3g})",
        f"{summary['energy_j']:.3g} J ({energy[0]:.3g}-{energy[1]:.3g})",
    ]
    return " | ".join(cells)


if __name__ == "__main__":
    typer.run(schedules)
