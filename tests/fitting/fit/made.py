"""Tables of synthetic readings of known constants."""

import dataclasses

import numpy as np

from diffenergy import measurements
from diffenergy.corrections import (
    CorrectionsFile,
    Levels,
    prior_file,
)
from diffenergy.fitting._batches import batches
from diffenergy.fitting._fit import target
from diffenergy.fitting._free_parameters import free_parameters
from diffenergy.fitting._parameters import Parameter, Parameters
from diffenergy.fitting._predict import predict
from diffenergy.measurements import MeasurementTable

TRUE = {"energy_dram": 6e-11, "dram_efficiency": 0.8, "launch_cycles": 4000.0}


SEEN, UNSEEN = "a100-sxm-80gb", "h100-sxm"


METER = "vllm/0.22.0"
"""A campaign whose power sensor has constants of its own."""


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
    made = predict(table, file)
    return dataclasses.replace(table, time_s=made.time_s, avg_power_w=made.avg_power_w)


def noisy(table: MeasurementTable, time: float, power: float) -> MeasurementTable:
    """The table with normal errors of ln time and ln power."""
    noise = np.random.default_rng(0).normal(size=(2, table.num_rows))
    return dataclasses.replace(
        table,
        time_s=table.time_s * np.exp(time * noise[0]),
        avg_power_w=table.avg_power_w * np.exp(power * noise[1]),
    )


def shape(folder, gpu: str, clocks: tuple[int, ...], sizes: range) -> MeasurementTable:
    """Copies of growing size at some clocks, nothing read yet."""
    path = folder / f"{gpu}.csv"
    lines = [
        f"{gpu},elementwise,copy,{2**power},bf16,{clock},1,1"
        for clock in clocks
        for power in sizes
    ]
    path.write_text("\n".join([HEAD, *lines]))
    return measurements.read([str(path)])


def free(levels: Levels, names: tuple[str, ...]) -> Parameters:
    """Global constants `names` free, around `levels`."""
    return Parameters(tuple(Parameter("global", name) for name in names), levels)


def freed(table: MeasurementTable, start: CorrectionsFile) -> set[str]:
    """Names of the numbers that a fit of the table frees."""
    targets = [target(table, b, 0.1, 0.1) for b in batches(table, start)]
    return {str(p) for p in free_parameters(start, targets).free}


def meter(
    folder, rows: int, gpu: str = UNSEEN, power: str = "400", dtype: str = "bf16"
) -> MeasurementTable:
    """GEMMs of that campaign, 1 ms each."""
    head = "gpu,framework,dtype,m,n,k,time_us,avg_power_w"
    lines = [
        f"{gpu},{METER},{dtype},{64 + i},4096,4096,1000,{power}" for i in range(rows)
    ]
    (folder / "meter.csv").write_text("\n".join([head, *lines]))
    return measurements.read([f"gemm={folder / 'meter.csv'}"])
