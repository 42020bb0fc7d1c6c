"""Constants of engines from measured servers: least squares with priors.

Step costs do not depend on them, so that all rows of one model, GPU and plan share a
table and a fit takes seconds.
"""

import dataclasses
import gzip
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from ...compiling import call_compiled
from ...files import csv_lines, row_place
from ...hardware import read_gpu
from .._deploy import deploy
from .._deployment import Deployment
from .._engine import ENGINES, SAMPLING, constants, engine_from
from .._load import Load
from .._many import covering
from .._steady.figures import load_arrays, steady
from .._steady.server import Server
from .._step.table import StepCosts

# --- Tables of measured servers (`serving.csv`): rows as loads with what was read.

MEASURED: Final = ("tpot_s", "ttft_s", "avg_power_w", "energy_j_per_output_token")
_LOADS: Final = ("max_batch", "concurrency", "rate")
_WHOLE: Final = ("num_gpus", "tp", "ep")
_WORDS: Final = ("dtype", "kv_dtype", "routing", "sampling")
_NEEDED: Final = ("gpu", "model", "engine", "input_len", "output_len")


@dataclasses.dataclass(frozen=True)
class ServedRow:
    """One measured server: its `number` from 0 and its `place` in the table, what it
    was (`server`: arguments of `deploy`), its `load`, how many requests ran where that
    was read (`running`), and `measured` figures by column, in SI, of all GPUs."""

    number: int
    place: str
    gpu: str
    model: str
    engine: str
    server: Mapping[str, Any]
    load: Load
    running: float | None
    measured: Mapping[str, float]


def is_serving(path: str | Path) -> bool:
    """Whether a file is a table of servers: it has the columns `engine` and lengths."""
    try:
        head = _text(Path(path)).partition("\n")[0]
    except (OSError, UnicodeDecodeError, EOFError):
        return False
    columns = {name.strip() for name in head.split(",")}
    return {"engine", "model", "output_len"} <= columns


def read_serving(path: str | Path | pd.DataFrame) -> list[ServedRow]:
    """Rows of a table of measured servers.

    Columns: `gpu, model, engine`, one of `max_batch, concurrency, rate`, `input_len,
    output_len` (as `serve` takes them); `num_gpus, tp, ep, dtype, kv_dtype, routing,
    sampling, cached_len, waves, running_requests` (measured) and `campaign` where they
    are known; measured `tpot_s, ttft_s, avg_power_w, energy_j_per_output_token`, any
    of them.
    Raises `ValueError` that names line and column for what cannot be read.
    """
    if isinstance(path, pd.DataFrame):
        cells = path.map(lambda x: "" if pd.isna(x) else str(x)).to_dict("records")
        return [
            _row(row, row_place("the logs", row, ()), x) for row, x in enumerate(cells)
        ]
    try:
        text = _text(Path(path))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ValueError(f"serving table '{path}' cannot be read ({error}).") from None
    (_, header), *rows = csv_lines(text, str(path)) or [(1, [])]
    if not rows:
        raise ValueError(f"serving table '{path}' has no rows.")
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        raise ValueError(f"`{missing[0]}` is no column of '{path}'; it is needed.")
    if not set(_LOADS) & set(header):
        raise ValueError(
            f"`max_batch` is no column of '{path}', nor are `concurrency` and `rate`; "
            "one of them is needed."
        )
    return [
        _row(row, f"{path}, line {line}", dict(zip(header, cells, strict=False)))
        for row, (line, cells) in enumerate(rows)
    ]


def _text(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()


def _row(number: int, place: str, cells: Mapping[str, str]) -> ServedRow:
    def text(name: str) -> str | None:
        return (cells.get(name) or "").strip() or None

    def value(name: str) -> float | None:
        cell = text(name)
        if cell is None:
            return None
        try:
            read = float(cell)
        except ValueError:
            read = math.nan
        if not math.isfinite(read) or read < 0:
            raise ValueError(f"{place}: `{name}` is '{cell}'; give a number.")
        return read

    for name in _NEEDED:
        if text(name) is None:
            raise ValueError(f"{place}: `{name}` is empty; fill it in.")
    engine = text("engine") or ""
    if engine not in ENGINES:
        raise ValueError(
            f"{place}: `engine` is '{engine}'; allowed are {', '.join(ENGINES)}."
        )
    load_values: dict[str, Any] = {
        name: value(name) for name in (*_LOADS, "cached_len", "waves")
    } | {name: text(name) for name in ("input_len", "output_len")}
    whole = {name: value(name) for name in _WHOLE}
    server = {name: int(x) for name, x in whole.items() if x is not None}
    words = {name: text(name) for name in _WORDS}
    server |= {name: x for name, x in words.items() if x is not None}
    try:
        load = Load(**load_values)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    measured = {x: y for x in MEASURED if (y := value(x)) is not None and y > 0}
    return ServedRow(
        number, place, text("gpu") or "", text("model") or "", engine, server, load,
        value("running_requests"), measured,
    )  # fmt: skip


# --- Constants of engines from measured servers

QUANTITIES: Final = ("tpot", "ttft", "power", "energy")
_READ: Final = ("tpot_s", "ttft_s", "avg_power_w", "energy_j_per_output_token")
"""Their columns in a table."""
_SD: Final = (0.05, 0.25, 0.06, 0.06)
"""Scatter of the logarithm of rows, by quantity: what a fit may leave."""
_ROBUST: Final = 3.0
"""Scatters beyond which a row counts less."""
_MOST: Final = 1100
"""Batches of a table."""
_FLAT: Final = 1e-6
"""Size of a robust miss, over `_ROBUST`, below which it is the miss itself."""
_NOTHING: Final = 1e-3
"""Share of its sd below which a constant is 0."""
ENERGY_FACTORS: Final = ("linear_energy", "attention_energy", "prefill_energy")
"""Factors on the energy of a GPU's kernels, which the shipped constants leave at 1."""
_OUTPUTS: Final = 1.5
"""Ratio of contexts that share a table."""


@dataclasses.dataclass(frozen=True)
class Served:
    """Measured servers ready to predict: `costs` of steps, a group each; `columns` of
    the rows (`_columns`); the `read` figures (ln; NaN: not read); engine and GPU of
    each (`hosts`)."""

    costs: StepCosts
    columns: Mapping[str, Any]
    read: np.ndarray
    hosts: list[str]
    rows: list[ServedRow]

    def predict(self, values: Mapping[str, Array]) -> np.ndarray:
        """ln of `QUANTITIES` of every row with constants `values`."""
        tables = self.costs, self.columns, dict(values)
        return np.asarray(call_compiled(served_figures, tables))


def as_arrays(values: Mapping[str, float]) -> dict[str, Array]:
    """Constants as numbers of JAX."""
    return {name: jnp.asarray(float(x)) for name, x in values.items()}


def served(rows: Sequence[ServedRow], progress: Any = None) -> Served:
    """Prices the steps of all rows: one table for those of a model, GPU and plan with
    alike lengths. Rows of open loops are not fitted and raise `ValueError`."""
    groups: dict[Any, list[tuple[ServedRow, Deployment]]] = {}
    for row in rows:
        if row.load.mode == "open":
            raise ValueError(
                f"{row.place}: `rate` is given; constants are fitted to closed "
                "loops and saturated servers."
            )
        engine: Any = row.engine
        deployment = deploy(row.model, row.gpu, row.load, engine=engine, **row.server)
        bucket = round(np.log(deployment.context) / np.log(_OUTPUTS))
        plan = (
            deployment.plan,
            deployment.request,
            deployment.card.name,
            deployment.model.name,
        )
        groups.setdefault((plan, bucket), []).append((row, deployment))
    tables, columns, order = [], [], []
    for number, members in enumerate(groups.values()):
        if progress is not None:
            progress(number + 1, len(groups))
        covered = covering([deployment for _, deployment in members], _MOST)
        tables.append(covered.costs())
        for row, deployment in members:
            columns.append(_columns(row, deployment, number))
            order.append(row)
    costs, stacked = (
        # by numpy: jax compiles a stack of every shape
        jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *each)
        for each in (tables, columns)
    )
    read = np.log([[x.measured.get(name, np.nan) for name in _READ] for x in order])
    hosts = [f"{row.engine}:{read_gpu(row.gpu).name}" for row in order]
    return Served(costs, stacked, read, hosts, order)


def _columns(row: ServedRow, deployment: Deployment, table: int) -> dict[str, Any]:
    """Numbers of a row for `served_figures`; costs are those of group `table`."""
    load, n = deployment.load, deployment.replicas
    values = deployment.card.values
    running = row.running or (load.max_batch if load.concurrency is None else None)
    slots = (
        min(deployment.fits, load.max_batch or np.inf)
        if running is None
        else running / n
    )
    clients = slots if load.concurrency is None else load.concurrency / n
    memory = deployment.memory(deployment.gpu)
    one = jnp.zeros(1)
    return {
        "table": table,
        "memory": dataclasses.replace(memory, elements=one, windows=one),  # not used
        "traffic": deployment.traffic,
        "vocab": float(deployment.model.vocab),
        "chunk": float(deployment.chunk),
        "graph": deployment.captured(),
        "first": float(deployment.schedule == "prefill-first"),
        "layers": float(deployment.launched),
        "mixture": float(deployment.request.routing is not None),
        "tiles": jnp.asarray(deployment.tiles),
        "tdp": values["tdp"],
        "bandwidth": values["dram_bandwidth"],
        "kinds": jnp.asarray([float(deployment.sampling == x) for x in SAMPLING]),
        "sm_clock": deployment.point.sm_clock,
        "cap": deployment.point.power_cap * deployment.gpu.cap_fraction,
        "slots": max(slots, 1.0),
        "clients": max(clients, 1.0),
        "looping": float(load.concurrency is not None and row.running is None),
        "phi": 0.0 if load.waves is None else 1 / load.waves,
        "gpus": float(deployment.plan.gpus),
        "replicas": float(n),
    }


def served_figures(
    tables: StepCosts, columns: Mapping[str, Any], values: Mapping[str, Array]
) -> Array:
    """ln of `QUANTITIES` of every row, of all its GPUs."""

    def one(row: Mapping[str, Any]) -> Array:
        costs = jax.tree.map(lambda x: x[row["table"]], tables)
        board = (row["layers"], row["tdp"], row["bandwidth"], row["tiles"])
        engine = engine_from(values, row["kinds"], *board)
        place = (row["memory"], row["traffic"], row["vocab"], row["chunk"])
        where = (row["graph"], row["first"], row["sm_clock"], row["cap"])
        # requests that run, where they are known, need no clients
        away = row["looping"] * engine.request
        inside = eqx.tree_at(lambda x: x.request, engine, away)
        server = Server(costs, inside, *place, *where)
        load = load_arrays(row["slots"], row["clients"], phi=row["phi"])
        state = steady(server, load, "closed")
        power = state.power * row["gpus"]
        energy = state.energy * (row["gpus"] / row["replicas"])
        first = state.ttft.mean + engine.request - away
        figures = (state.tpot.mean, first, power, energy)
        return jnp.log(jnp.stack(figures))

    return jax.vmap(one)(columns)


def served_slopes(
    tables: StepCosts,
    columns: Mapping[str, Any],
    values: Mapping[str, Array],
    moving: Mapping[str, Array],
) -> Mapping[str, Array]:
    """Derivatives of `served_figures` by the constants `moving`."""

    def at(x: Mapping[str, Array]) -> Array:
        return served_figures(tables, columns, {**values, **x})

    return jax.jacfwd(at)(moving)


def fitted(
    served_rows: Served,
    use: np.ndarray,
    centres: Mapping[str, float],
    fixed: Sequence[str] = (),
) -> dict[str, float]:
    """Constants of one engine that the rows `use` (booleans) move: the least robust
    squares with the shipped priors around `centres`; `fixed`: constants that stay."""
    from scipy.optimize import least_squares

    priors = constants()
    names = tuple(priors)
    centre = np.array([centres[name] for name in names])
    # fixed constants keep a tiny sd, so that bounds over sd stay finite
    sd = np.array([priors[name].sd * (name not in fixed) + 1e-12 for name in names])
    free = np.flatnonzero(~np.isin(names, fixed))
    valid = np.isfinite(served_rows.read) & use[:, None]
    target = np.where(valid, served_rows.read, 0.0)
    weight = valid / np.array(_SD)
    # All rows go through one program, whichever of them count: folds share it.
    tables = served_rows.costs, served_rows.columns

    def values_at(z: np.ndarray) -> dict[str, Array]:
        values = np.maximum(centre + sd * z, 0.0)
        return as_arrays(dict(zip(names, values.tolist(), strict=True)))

    def robust(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(soft l1 of the misses, its derivative by them)"""
        miss = (served_rows.predict(values_at(z)) - target) * weight
        size = np.sqrt(1 + (miss / _ROBUST) ** 2)
        half = np.sqrt(2 * (size - 1) + 1e-30)
        slope = np.abs(miss) / (_ROBUST * size * half)
        near = half < _FLAT
        return _ROBUST * np.sign(miss) * half, np.where(near, 1.0, slope)

    def residual(z: np.ndarray) -> np.ndarray:
        return np.concatenate([robust(z)[0].ravel(), z])

    def jacobian(z: np.ndarray) -> np.ndarray:
        values = values_at(z)
        moving = {names[i]: values[names[i]] for i in free}
        by_name = call_compiled(served_slopes, (*tables, values, moving))
        slopes = np.stack([by_name[name] for name in moving], -1)
        scale = (robust(z)[1] * weight)[..., None]
        out = np.zeros((valid.size, len(names)))
        out[:, free] = (scale * slopes).reshape(valid.size, -1) * sd[free]
        return np.concatenate([out, np.eye(len(names))])

    low = np.minimum(-centre / sd, -1e-9)  # constants are not negative
    answer = least_squares(
        residual,
        np.zeros(len(names)),
        jacobian,  # pyright: ignore[reportArgumentType]
        bounds=(low, np.full(len(names), np.inf)),
        max_nfev=60,
    )
    values = np.maximum(centre + sd * answer.x, 0.0)
    # what the data did not move stays with the prior and is not written
    moves = (np.abs(answer.x) > 1e-3) & ~np.isin(names, fixed)
    return {
        name: float(f"{value:.3g}") if value > _NOTHING * width else 0.0
        for name, value, width, moved in zip(names, values, sd, moves, strict=True)
        if moved
    }
