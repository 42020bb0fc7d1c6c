"""Die area and idle power: the two regressions, every residual, left-out errors.

    python calibration/studies/silicon.py

Prints Markdown tables of the fits and of other forms that were dropped, then the
numbers of `diffenergy/data/facts/silicon.toml`. The facts are bundled
(`diffenergy/data/facts/dies.toml`).
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from calibration.studies.silicon_fit import (  # noqa: E402
    Fit,
    area_fit,
    die_circuits,
    idle_fit,
    idle_terms,
    regression,
    stored,
)
from diffenergy.codesign._space.silicon import (  # noqa: E402
    IdleModel,
    board_channels,
)
from diffenergy.hardware import (  # noqa: E402
    SIGNIFICANDS,
    AreaModel,
    process_rules,
    published_dies,
    read_gpu,  # noqa: E402
)
from diffenergy.hardware._dies import idle_readings, sram_area  # noqa: E402


def silicon() -> None:
    """Print both regressions."""
    area = AreaModel(*area_fit().coefficients)
    idle = IdleModel(*idle_fit().coefficients)
    typer.echo(
        f"Area: {area.sm:.3e} gate pitches x metal pitches an SM, {area.lane:.3e} an "
        f"fp32 lane, {area.channel:.2f} mm2 a DRAM channel\n"
    )
    _table(area_fit(), "die", "mm2", [die.process for die in published_dies()])
    _forms("area", _other_areas())
    typer.echo(
        f"\nIdle: {idle.transistors:.3f} W a 10^9 transistors in use, "
        f"{idle.stack:.2f} W an HBM stack, {idle.channel:.2f} W a GDDR channel\n"
    )
    readings = idle_readings()
    fit = idle_fit()
    _table(fit, "board", "W", [readings[name].note for name in fit.names])
    _forms("idle power", _other_idles())
    for name, reading in readings.items():
        if not reading.fit:
            power = float(fit.coefficients @ np.array(idle_terms(name)))
            typer.echo(
                f"not fitted: {name} {reading.power:g} W read, {power:.1f} predicted "
                f"({reading.note}; {reading.quality})"
            )
    typer.echo(f"\nThe numbers of data/facts/silicon.toml:\n\n{stored()}")


def _other_areas() -> Iterator[tuple[str, Fit]]:
    """Forms with at most three fitted numbers, each one change to the one in use."""
    owned = [die_circuits(die) for die in published_dies()]
    rules = [process_rules(die.process) for die in published_dies()]
    pitch = np.array([rule.logic_area for rule in rules])
    cell = np.array([rule.bit_cell for rule in rules])
    sms, lanes, channels, sram = (np.array(x) for x in zip(*owned, strict=True))
    boards = [read_gpu(die.gpus[0]) for die in published_dies()]
    largest = [
        max(_lanes(b.values, r) for r in SIGNIFICANDS if "fma" not in r) for b in boards
    ]
    fma = [sum(_lanes(b.values, r) for r in SIGNIFICANDS if "fma" in r) for b in boards]
    shared = sms * (np.array(fma) + np.array(largest))
    used = np.array([board_channels(b) for b in boards])
    rate = np.array([b.values["dram_bandwidth"] for b in boards]) * channels / used
    stacked = np.array([die.memory.startswith("HBM") for die in published_dies()])
    arrays, constant = sram_area(sram, cell), np.ones_like(sms)
    logic = (pitch * sms, pitch * lanes)
    forms = {
        "an HBM stack as 1 channel": (
            (*logic, np.where(stacked, 0.5, 1) * channels),
            arrays,
        ),
        "as 3": ((*logic, np.where(stacked, 1.5, 1) * channels), arrays),
        "as 4": ((*logic, np.where(stacked, 2, 1) * channels), arrays),
        "SRAM 1 x its cells": ((*logic, channels), 0.5 * arrays),
        "SRAM 3 x its cells": ((*logic, channels), 1.5 * arrays),
        "SRAM fitted, multipliers not counted": (
            (logic[0], arrays, channels),
            0 * arrays,
        ),
        "SMs all alike": ((logic[0], channels), arrays),
        "multipliers alone": ((logic[1], channels), arrays),
        "tensor types share one multiplier, the largest": (
            (logic[0], pitch * shared, channels),
            arrays,
        ),
        "logic shrinks like the bit cell": (
            (cell * sms, cell * lanes, channels),
            arrays,
        ),
        "interface shrinks like logic": ((*logic, pitch * channels), arrays),
        "interface by bandwidth": ((*logic, rate), arrays),
        "a constant in place of the interface": ((*logic, constant), arrays),
    }
    names = [die.name for die in published_dies()]
    areas = np.array([die.die_area for die in published_dies()])
    for name, (terms, known) in forms.items():
        yield name, regression(names, names, np.stack(terms, axis=1), areas, known)


def _other_idles() -> Iterator[tuple[str, Fit]]:
    """Forms of the idle power with at most three fitted numbers."""
    fit = idle_fit()
    owners = [next(d for d in published_dies() if name in d.gpus) for name in fit.names]
    boards = [read_gpu(name) for name in fit.names]
    live, stacks, channels = np.array([idle_terms(name) for name in fit.names]).T
    count = np.array([die.transistors for die in owners])
    areas = np.array([die.die_area for die in owners])
    used = np.array([b.values["num_sms"] for b in boards])
    used = used / [die.num_sms for die in owners]
    rate = np.array([b.values["dram_bandwidth"] for b in boards])
    constant = np.ones_like(count)
    forms = {
        "all transistors, spare ones too": (count, stacks, channels),
        "area, spare SMs too": (areas, stacks, channels),
        "area x share of SMs switched on": (areas * used, stacks, channels),
        "transistors, stacks": (live, stacks),
        "transistors, stacks, a constant": (live, stacks, constant),
        "transistors, bandwidth, a constant": (live, rate, constant),
        "area, bandwidth, a constant": (areas, rate, constant),
        "area, a constant": (areas, constant),
    }
    names = [die.name for die in owners]
    for name, terms in forms.items():
        matrix = np.stack(terms, axis=1)
        known = np.zeros_like(count)
        yield name, regression(fit.names, names, matrix, fit.measured, known)


def _forms(what: str, others: Iterator[tuple[str, Fit]]) -> None:
    typer.echo(
        f"\n| other form of the {what} | left out: mean, % | worst, % |\n|---|---|---|"
    )
    for name, other in others:
        errors = 100 * np.abs(other.left_out_errors)
        typer.echo(f"| {name} | {errors.mean():.1f} | {errors.max():.1f} |")


def _lanes(values: Mapping[str, float], rate: str) -> float:
    """Multipliers of one rate of an SM, in those of an fp32 lane."""
    return values[rate] / 2 * (SIGNIFICANDS[rate] / 24) ** 2


def _table(fit: Fit, what: str, unit: str, notes: list[str]) -> None:
    typer.echo(
        f"| {what} | {unit} | fitted | residual, % | left out, % | |\n"
        "|---|---|---|---|---|---|"
    )
    errors = 100 * fit.residuals, 100 * fit.left_out_errors
    rows = zip(fit.names, fit.measured, fit.fitted, *errors, notes, strict=True)
    for name, measured, fitted, residual, left_out, note in rows:
        typer.echo(
            f"| {name} | {measured:g} | {fitted:.1f} | {residual:+.1f} "
            f"| {left_out:+.1f} | {note} |"
        )
    for word, error in zip(("residual", "left out"), errors, strict=True):
        typer.echo(
            f"{word}: mean {np.mean(np.abs(error)):.1f} %, "
            f"worst {np.max(np.abs(error)):.1f} %"
        )


if __name__ == "__main__":
    typer.run(silicon)
