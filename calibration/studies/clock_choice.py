"""Energy at the clock that the planner chooses, beside the best clock measured.

    python calibration/studies/clock_choice.py ../shared/data [--corrections FILE]

For every measured series of clocks of the A100-PCIe-40GB the planner picks the single
clock of least energy among those of the series; the table says what that clock was
measured to take beyond the best one. Series whose time rises with the clock by more
than 4 % are bound by the host and stand apart.
"""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import jax
import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from calibration.splits.base import Data
from diffenergy.corrections import read_corrections
from diffenergy.dvfs import Objective, Rules
from diffenergy.dvfs._modelled import clock_pairs, modelled
from diffenergy.dvfs._schedule import schedule
from diffenergy.hardware import read_gpu

_GPU: Final = "a100-pcie-40gb"
_SOURCE: Final = "a100_dvfs"
_RISE: Final = 1.04
"""Time at a clock / time at the next lower one, above which the host is what binds."""


def clock_choice(
    folder: Annotated[Path, typer.Argument(help="folder of the measured tables")],
    corrections: Annotated[
        str | None, typer.Option(help="constants [the shipped ones]")
    ] = None,
) -> None:
    """Print a Markdown table: one line a series, then their mean and worst."""
    jax.config.update("jax_enable_x64", True)
    card = read_gpu(_GPU)
    served = read_corrections(corrections).serve(card)
    lines = [
        _line(series, listings, card, served) for series, listings in _measured(folder)
    ]
    lines.sort(key=lambda line: line["host"])
    typer.echo("| series | bound by | best clock | chosen | energy above the best |")
    typer.echo("|---|---|---|---|---|")
    for line in lines:
        bound = "host" if line["host"] else "GPU"
        typer.echo(
            f"| {line['name']} | {bound} | {line['best'] / 1e6:.0f} "
            f"| {line['chosen'] / 1e6:.0f} | {line['excess']:.2f} % |"
        )
    for bound, word in ((False, "GPU"), (True, "host")):
        excess = [line["excess"] for line in lines if line["host"] == bound]
        typer.echo(
            f"{word}-bound: {len(excess)} series, mean {np.mean(excess):.2f} %, "
            f"worst {max(excess):.2f} %"
        )


def _measured(folder: Path) -> list[tuple[Any, list[Any]]]:
    """Measured series (clock, time, energy by workload) with their listings."""
    data = Data(folder)
    frame = data.passes.frame
    rows = frame[frame["source"] == _SOURCE]
    columns = ["sm_clock_mhz_set", "time_ms_per_iter", "energy_j_per_iter"]
    rows = rows.assign(**{name: rows[name].astype(float) for name in columns})
    return [
        (series.sort_values("sm_clock_mhz_set"), data.listings[str(name)])
        for name, series in rows.groupby("workload")
    ]


def _line(series: Any, listings: list[Any], card: Any, served: Any) -> dict[str, Any]:
    """What the planner chooses for one series."""
    clocks = series["sm_clock_mhz_set"].to_numpy() * 1e6
    time = series["time_ms_per_iter"].to_numpy()
    energy = series["energy_j_per_iter"].to_numpy()
    labels = [str(i) for x in listings for i, _ in enumerate(x.kernels)]
    costs = modelled(
        listings, labels, card, served, card.values["tdp"], clock_pairs(card, clocks)
    )
    _, plan = schedule(costs, Objective("energy"), Rules(granularity="iteration"))
    chosen = costs.settings[plan.setting[0], 0]
    chosen = card.values["sm_clock_max"] if np.isnan(chosen) else chosen
    best = int(energy.argmin())
    at = int(np.abs(clocks - chosen).argmin())
    return {
        "name": series["workload"].iloc[0],
        "host": bool((time[1:] / time[:-1] > _RISE).any()),
        "best": clocks[best],
        "chosen": chosen,
        "excess": 100 * float(energy[at] / energy[best] - 1),
    }


if __name__ == "__main__":
    typer.run(clock_choice)
