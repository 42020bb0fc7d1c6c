"""Tables of synthetic readings of known constants."""

import dataclasses
from typing import Any

import numpy as np
from jax import Array
from jaxtyping import Float

from diffenergy import measurements
from diffenergy.corrections import (
    CorrectionsFile,
    Levels,
    constant,
    constants_of,
    prior_file,
)
from diffenergy.fitting import predict
from diffenergy.fitting._batches import batches
from diffenergy.fitting._calibrate import Calibration, Settings, calibrate
from diffenergy.fitting._fit import Fit, Target, target
from diffenergy.fitting._flags import Flag
from diffenergy.fitting._free_parameters import free_parameters
from diffenergy.fitting._parameters import Parameter, Parameters
from diffenergy.fitting._predict import corrections_file
from diffenergy.measurements import MeasurementTable, Meter, Reading
from diffenergy.physics import TimeEnergy
from diffenergy.records import Record

TRUE = {"energy_dram": 6e-11, "dram_efficiency": 0.8, "launch_cycles": 4000.0}


SEEN, UNSEEN = "a100-sxm-80gb", "h100-sxm"


METER = "ours/1"
"""A campaign whose meter has constants of its own."""


def _number(centre: float, unit: str) -> Any:
    """A number of the meter, its prior half its size."""
    return constant(
        centre, 0.5, unit, "the meter's", closes="a second meter", source="Fitting"
    )


class Numbers(Record):
    """What is fitted of the meter."""

    hot_share: Float[Array, ""] = _number(0.5, "-")
    background: Float[Array, ""] = _number(100.0, "W")


class OwnReading(Reading):
    """A sensor that averages over a window of which the run fills a share."""

    left_over: np.ndarray

    def read(
        self, constants: Numbers, free: TimeEnergy, limited: TimeEnergy
    ) -> TimeEnergy:
        """Mean of the run and what was before."""
        share, before = constants.hot_share, constants.background
        rest = (1 - share) * before * limited.time
        return TimeEnergy(limited.time, share * limited.energy + rest)

    @property
    def random(self) -> np.ndarray:
        """Rows without left-over operands."""
        return np.asarray(self.left_over) == 0


class OwnMeter(Meter):
    """Meter of `METER`: buffers of bf16 products are left over."""

    constants = Numbers

    def known(self, corrections, campaign, op, gpu):
        """All constants, those of a file before their priors."""
        if campaign != METER:
            return {}
        fitted = corrections.instruments.get(f"{campaign}:{op}@{gpu}", {})
        return {name: row.centre for name, row in NUMBERS.items()} | fitted

    def reading(self, table, op, rows, gpu, corrections):
        """The sensor, of its campaign alone."""
        if op != "gemm" or set(table.campaign[rows]) != {METER}:
            return Reading()
        place = np.searchsorted(table.fields[op].rows, rows)
        left = table.fields[op].values["dtype"][place] == "bf16"
        return OwnReading(left_over=left.astype(float))


NUMBERS = constants_of(Numbers)


HEAD = "gpu,op,fn,elements,dtype,sm_clock_mhz,time_us,avg_power_w"


ON = {
    "architectures": {SEEN: "architecture:Ampere"},
    "rows": {f"{SEEN}:elementwise": {"time": 32, "power": 32}},
}
"""What rows of one GPU leave in the file that was fitted on them."""


def truth(factors: dict[str, dict[str, float]] | None = None) -> CorrectionsFile:
    """Corrections with the known constants, and factors by level."""
    file = prior_file()
    file.levels["global"].update(TRUE)
    file.levels.update(factors or {})
    return file


def read(table: MeasurementTable, file: CorrectionsFile) -> MeasurementTable:
    """The table with the readings of known constants."""
    predictions = predict(table, file)
    return dataclasses.replace(
        table, time_s=predictions.time_s, avg_power_w=predictions.avg_power_w
    )


def noisy(table: MeasurementTable, time: float, power: float) -> MeasurementTable:
    """The table with normal errors of ln time and ln power."""
    noise = np.random.default_rng(0).normal(size=(2, table.num_rows))
    return dataclasses.replace(
        table,
        time_s=table.time_s * np.exp(time * noise[0]),
        avg_power_w=table.avg_power_w * np.exp(power * noise[1]),
    )


def read_rows(folder, head: str, *lines: str, **options: Any) -> MeasurementTable:
    """Table of a file of these rows."""
    path = folder / "rows.csv"
    path.write_text("\n".join([head, *lines]))
    return measurements.read([str(path)], **options)


def shape(folder, gpu: str, clocks: tuple[int, ...], sizes: range) -> MeasurementTable:
    """Copies of growing size at some clocks, nothing read yet."""
    return read_rows(folder, HEAD, *(
        f"{gpu},elementwise,copy,{2**power},bf16,{clock},1,1"
        for clock in clocks for power in sizes
    ))  # fmt: skip


def targets_of(
    start: CorrectionsFile, *tables: MeasurementTable, time: float = 0.1, power=0.1
) -> list[Target]:
    """What a fit of the tables makes small, with expected errors in ln."""
    return [target(x, b, time, power) for x in tables for b in batches(x, start)]


def free(levels: Levels, names: tuple[str, ...]) -> Parameters:
    """Global constants `names` free, around `levels`."""
    return Parameters(tuple(Parameter("global", name) for name in names), levels)


def freed(table: MeasurementTable, start: CorrectionsFile) -> set[str]:
    """Names of the numbers that a fit of the table frees."""
    return {str(p) for p in free_parameters(start, targets_of(start, table)).free}


def meter(
    folder, rows: int, gpu: str = UNSEEN, power: str = "400", dtype: str = "bf16"
) -> MeasurementTable:
    """GEMMs of that campaign, 1 ms each."""
    head = "gpu,framework,dtype,m,n,k,time_us,avg_power_w"
    each = f"{gpu},{METER},{dtype}", f"4096,4096,1000,{power}"
    lines = [f"{each[0]},{64 + i},{each[1]}" for i in range(rows)]
    (folder / "meter.csv").write_text("\n".join([head, *lines]))
    return measurements.read([f"gemm={folder / 'meter.csv'}"], meter=OwnMeter())
