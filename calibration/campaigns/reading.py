"""`meter`: how the rows of a public campaign were read."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import equinox as eqx
import numpy as np

from diffenergy.corrections import CorrectionsFile
from diffenergy.hardware import read_gpu
from diffenergy.kernels import units_dealt
from diffenergy.measurements import MeasurementTable, Meter, Reading
from diffenergy.physics import TimeEnergy
from diffenergy.records import as_float
from diffenergy.workload import Workload

from .blocks import cold_blocks, fresh_process, in_blocks
from .formulas import Instrument, data_activity, reading
from .instruments import SENSOR_CONSTANTS, Sensor, model_of

_LOOP_FACTS: Final = ("loop_seconds", "call_seconds", "loop", "loop_body", "unfilled")
"""Facts of a loop of kernels that a campaign may state."""


class CampaignReading(Reading):
    """Readings of rows whose facts an `Instrument` has."""

    instrument: Instrument
    sampling: str = eqx.field(static=True, default="")
    """Model of the power sensor (`formulas.reading`)."""
    unfilled: bool = eqx.field(static=True, default=False)
    """Whether some rows have weights that nobody filled."""

    def load(self, workload: Workload, constants: Sensor) -> Workload:
        """The workload with the switching activity of its buffers' contents."""
        if not self.unfilled:
            return workload
        moved, math = data_activity(self.instrument, constants)
        phases = dataclasses.replace(
            workload.phases, data_activity=moved, math_activity=math
        )
        return dataclasses.replace(workload, phases=phases)

    def read(
        self, constants: Sensor, free: TimeEnergy, limited: TimeEnergy
    ) -> TimeEnergy:
        """`formulas.reading` of runs."""
        return reading(self.instrument, constants, self.sampling, free, limited)

    @property
    def random(self) -> np.ndarray:
        """Rows whose weights were filled with random numbers."""
        return np.asarray(self.instrument.unfilled) == 0


class CampaignMeter(Meter):
    """The meters of `instruments.toml`; what was fitted of them, a corrections file
    has."""

    constants = Sensor

    def known(
        self, corrections: CorrectionsFile, campaign: str, op: str, gpu: str
    ) -> dict[str, float]:
        """Constants of the sensor of power."""
        model = model_of(corrections, campaign, op, gpu)
        return {name: model[name] for name in SENSOR_CONSTANTS if name in model}

    def reading(
        self,
        table: MeasurementTable,
        op: str,
        rows: np.ndarray,
        gpu: str,
        corrections: CorrectionsFile,
    ) -> Reading:
        """Loops, sensors and contents of the rows' campaigns."""
        single = op not in ("workload", "plan")
        campaign = str(table.campaign[rows[0]]) if single else ""
        model = model_of(corrections, campaign, op, gpu)
        sampling = (
            "series" if "warm_share" in model else "gap" if "gap" in model else ""
        )
        facts = {}
        if single:
            facts = facts_of(model, op, _values(table, op, rows), len(rows))
        instrument = _instrument(table, corrections, op, rows, gpu, facts)
        return CampaignReading(
            bursts=bool(np.isfinite(np.asarray(instrument.burst)).any()),
            instrument=instrument,
            sampling=sampling,
            unfilled=bool((np.asarray(instrument.unfilled) > 0).any()),
        )

    def copies(
        self,
        table: MeasurementTable,
        op: str,
        rows: np.ndarray,
        gpu: str,
        corrections: CorrectionsFile,
    ) -> np.ndarray:
        """Sets of weights that a campaign's loop cycles through."""
        model = model_of(corrections, str(table.campaign[rows[0]]), op, gpu)
        return by_row(model, "weight_copies", _values(table, op, rows), len(rows), 1.0)

    def begin(
        self, table: MeasurementTable, corrections: CorrectionsFile
    ) -> CorrectionsFile:
        """Adds the cold blocks of every campaign whose sensor models series."""
        instruments = {name: dict(x) for name, x in corrections.instruments.items()}
        for (gpu, op, campaign), index in table.kernel_groups().items():
            rows = index[np.isfinite(table.avg_power_w[index])]
            model = model_of(corrections, campaign, op, gpu)
            if len(rows) and op == "gemm" and "warm_share" in model:
                constants = instruments.setdefault(f"{campaign}:gemm@{gpu}", {})
                constants["cold_blocks"] = cold_blocks(table, rows, read_gpu(gpu))
        return dataclasses.replace(corrections, instruments=instruments)

    def usable(
        self, table: MeasurementTable, corrections: CorrectionsFile
    ) -> MeasurementTable:
        """Without rows within the launch loop and the power of kernels too short for
        their sensor's model."""
        skipped, power = table.skipped.copy(), table.avg_power_w.copy()
        for (gpu, op, campaign), index in table.kernel_groups().items():
            model = model_of(corrections, campaign, op, gpu)
            values, time = _values(table, op, index), table.time_s[index]
            least = {
                name: by_row(model, name, values, len(index))
                for name in ("floor_seconds", "power_seconds")
            }
            skipped[index[time < least["floor_seconds"]]] = "within the launch loop"
            power[index[time < least["power_seconds"]]] = np.nan
        return dataclasses.replace(table, skipped=skipped, avg_power_w=power)


meter: Final = CampaignMeter()


def _values(
    table: MeasurementTable, op: str, rows: np.ndarray
) -> dict[str, np.ndarray]:
    """Fields of the rows of one op."""
    columns = table.fields[op]
    place = np.searchsorted(columns.rows, rows)
    return {name: values[place] for name, values in columns.values.items()}


def by_row(
    model: Mapping[str, Any],
    name: str,
    values: Mapping[str, np.ndarray],
    count: int,
    default: float = 0.0,
) -> np.ndarray:
    """A number of a measurement model for each of `count` rows: `name` with the row's
    dtype or family behind it, else `name` alone."""
    value = np.full(count, float(model.get(name, default)))
    for column in ("dtype", "family"):
        if column not in values:
            continue
        words = values[column].astype(str)
        for word in np.unique(words):
            if f"{name}_{word}" in model:
                value[words == word] = model[f"{name}_{word}"]
    return value


def facts_of(
    model: Mapping[str, Any], op: str, values: Mapping[str, np.ndarray], count: int
) -> dict[str, np.ndarray]:
    """Facts of each kernel that a campaign's measurement model needs."""
    names = dataclasses.fields(Instrument)
    defaults: dict[str, Any] = {field.name: field.default for field in names}
    facts = {
        name: by_row(model, name, values, count, defaults[name]) for name in _LOOP_FACTS
    }
    if op == "gemm":
        m, n, k = (np.asarray(values[x], float) for x in "mnk")
        facts |= {"rows": m, "operand_bytes": 12 * n * k}
        if "warm_share" not in model:
            return facts
        narrow = values["dtype"] != "bf16"
        facts |= {
            "narrow": narrow.astype(float),
            "fresh": fresh_process(m, n, k, narrow).astype(float),
            "cold": in_blocks(model.get("cold_blocks", []), m, n),
        }
    elif "gap" in model and "q_len" in values:
        batch, queries, keys, heads, kv_heads, size = (
            np.asarray(values[x], float)
            for x in (
                "batch", "q_len", "kv_len", "num_heads", "num_kv_heads", "head_dim"
            )
        )  # fmt: skip
        elements = queries * heads + 2 * keys * kv_heads
        facts |= {"sequences": batch, "operand_bytes": 2 * batch * elements * size}
        if "first_q_len" in model:
            first = queries >= model["first_q_len"]
            facts["fresh"] = first.astype(float)
    elif "gap" in model and "topk" in values:
        names = ("num_tokens", "num_experts", "topk", "distribution")
        facts["sequences"] = _dealt(*(values[name] for name in names))
    return facts


def _dealt(*columns: np.ndarray) -> np.ndarray:
    """Units of expert load that the host deals out one by one before each run."""
    rows = list(zip(*columns, strict=True))
    pairs = {
        row: units_dealt(int(row[0]), int(row[1]), int(row[2]), str(row[3]))
        for row in set(rows)
    }
    return np.array([pairs[row] for row in rows], float)


def _instrument(
    table: MeasurementTable,
    corrections: CorrectionsFile,
    kind: str,
    rows: np.ndarray,
    gpu: str,
    facts: Mapping[str, np.ndarray],
) -> Instrument:
    """How the rows were read: their campaign's model of loop and sensor."""
    campaigns, which = np.unique(table.campaign[rows].astype(str), return_inverse=True)
    models = [model_of(corrections, name, kind, gpu) for name in campaigns]

    def of(name: str, default: float = 0.0) -> np.ndarray:
        return np.array([model.get(name, default) for model in models])[which]

    iterations = table.iterations[rows]
    facts = {
        "startup_seconds": of("startup_seconds"),
        "startup_power": of("startup_power"),
        "iterations": np.where(np.isnan(iterations), np.inf, iterations),
        "burst": of("burst", np.inf),
        **facts,
    }
    rest = {
        field.name: np.full(len(rows), np.asarray(field.default, float))
        for field in dataclasses.fields(Instrument)
        if field.name not in facts
    }
    return Instrument(**{name: as_float(x) for name, x in (facts | rest).items()})
