"""Columns that say the same in another unit."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from ..measurements import (
    ANY_NUMBER,
    NOT_NEGATIVE,
    POSITIVE,
    CellRange,
    Sheet,
    bad_cell,
    name_list,
    read_numbers,
    read_sheet,
    read_texts,
    require_column,
)
from ..units import MHz
from ._hosts import Hosts
from ._problem import Rows

_OTHERS: Final = {
    "per_s": ("per_min", "per_h", "per_hour", "per_day"),
    "s": ("ms", "us"),
    "w": ("kw", "mw"),
    "mhz": ("hz", "khz", "ghz"),
}
"""By the unit that a column ends in, units that are not read."""
_UNIT_TEXTS: Final = {"per_s": "1/s", "w": "W", "mhz": "MHz"}


def check_units(sheet: Sheet, columns: Sequence[str]) -> None:
    """Raises `ValueError` unless each quantity stands once, in its own unit."""
    for column in columns:
        unit = next((x for x in _OTHERS if column.endswith(f"_{x}")), None)
        if unit is None:
            continue
        stem = column.removesuffix(unit)
        for other in _OTHERS[unit]:
            if f"{stem}{other}" in sheet.columns:
                raise ValueError(
                    f"{sheet.file}: there is a column `{stem}{other}`; allowed is "
                    f"`{column}` alone, in {_UNIT_TEXTS.get(unit, unit)}; convert it."
                )


# --- Series by slot: two columns, `slot` or `time`, then the value; and the demand.

ALLOWED: Final[dict[str, CellRange]] = {
    "power_budget_w": POSITIVE,
    "carbon": NOT_NEGATIVE,
    "price": ANY_NUMBER,
}
"""Range of the values of a site."""
_MOST_SLOTS: Final = 100_000


@dataclasses.dataclass(frozen=True)
class Demand:
    """requests/s of every model in every slot; `times`: when slots begin, UTC, None
    where they are numbered; `length` of a slot, s."""

    values: Float[np.ndarray, "slot model"]
    times: Shaped[np.ndarray, " slot"] | None
    length: float


@dataclasses.dataclass(frozen=True)
class Series:
    """`demand` as asked for; `times` of slots, None where they are numbered; `budget` W
    (infinite: none), `carbon` g/kWh and `price` per MWh of sites, None where not every
    site has one; `currency` of prices, None where none is named; `assumed`: what was
    taken because the fleet does not say it."""

    demand: Float[np.ndarray, "slot model"]
    times: Shaped[np.ndarray, " slot"] | None
    budget: Float[np.ndarray, "slot site"]
    carbon: Float[np.ndarray, "slot site"] | None
    price: Float[np.ndarray, "slot site"] | None
    currency: str | None = None
    assumed: Mapping[str, str] = dataclasses.field(default_factory=dict)


def read_demand(file: str, models: Sequence[str], length: float) -> Demand:
    """`slot` or `time`, `model`, `requests_per_s`: every model in every slot (of
    `length` s), once.

    Raises `ValueError` in one sentence for what is missing, twice, unknown or below 0.
    """
    sheet = read_sheet(file)
    key = _key(sheet)
    for column in ("model", "requests_per_s"):
        require_column(sheet, column, f"add `{column}`")
    check_units(sheet, ["requests_per_s"])
    row = np.arange(sheet.num_rows)
    values = read_numbers(sheet, "requests_per_s", row, NOT_NEGATIVE, needed=True)
    named = read_texts(sheet, "model", row)
    place = pd.Index(models).get_indexer(pd.Index(named))
    if (place < 0).any():
        raise bad_cell(
            sheet, int((place < 0).argmax()), "model",
            f"the `name` of one of the [[models]]: {name_list(models)}",
        )  # fmt: skip
    slot, times = _slots(sheet, key, row, length)
    slots = int(slot.max()) + 1
    cell = slot * len(models) + place
    rows_of = np.bincount(cell, minlength=slots * len(models))
    if (rows_of > 1).any():
        first = int((rows_of > 1).argmax())
        where = _name(key, first // len(models), times)
        raise ValueError(
            f"{file}: model `{models[first % len(models)]}` has {rows_of[first]} rows "
            f"in {where}; give one."
        )
    if (rows_of == 0).any():
        first = int((rows_of == 0).argmax())
        where = _name(key, first // len(models), times)
        raise ValueError(
            f"{file}: model `{models[first % len(models)]}` has no row in {where}; "
            "give every model a row in every slot, 0 where nothing is asked for."
        )
    demand = np.zeros(slots * len(models))
    demand[cell] = values
    return Demand(demand.reshape(slots, len(models)), times, length)


def read_series(
    file: str, what: str, demand: Demand
) -> tuple[Float[np.ndarray, " slot"], str]:
    """Values of `what` (a key of `ALLOWED`) for the slots of the demand; what is longer
    is cut. And the name of their column.

    Raises `ValueError` in one sentence if it is shorter, or no such table.
    """
    sheet = read_sheet(file)
    key = _key(sheet)
    others = [name for name in sheet.columns if name != key]
    if len(others) != 1:
        raise ValueError(
            f"{file}: there are the columns {name_list(sheet.columns)}; allowed are "
            f"two, `{key}` and the values of `{what}`; leave the others out."
        )
    row = np.arange(sheet.num_rows)
    values = read_numbers(sheet, others[0], row, ALLOWED[what], needed=True)
    slot, times = _slots(sheet, key, row, demand.length)
    rows_of = np.bincount(slot)
    if (rows_of != 1).any():
        first = int((rows_of != 1).argmax())
        raise ValueError(
            f"{file}: {_name(key, first, times)} has {rows_of[first]} rows; give one "
            "row for every slot, from 0 on."
        )
    slots = len(demand.values)
    if len(rows_of) < slots:
        raise ValueError(
            f"{file}: there are {len(rows_of)} slots, but the demand has {slots}; "
            "give a value for every slot."
        )
    if times is not None and demand.times is not None:
        apart = np.flatnonzero(times[:slots] != demand.times)
        if len(apart):
            raise ValueError(
                f"{file}: slot {apart[0]} is at {times[apart[0]]}Z, but in the demand "
                f"at {demand.times[apart[0]]}Z; give both for the same hours, or "
                "number them with a column `slot`."
            )
    series = np.zeros(len(rows_of))
    series[slot] = values
    return series[:slots], others[0]


def _key(sheet: Sheet) -> str:
    """`slot` or `time`, whichever the table has."""
    both = [name for name in ("slot", "time") if name in sheet.columns]
    if len(both) == 2:
        raise ValueError(
            f"{sheet.file}: there are both `slot` and `time`; leave one of them out."
        )
    if not both:
        require_column(sheet, "slot", "add `slot` (from 0 on) or `time`")
    return both[0]


def _slots(
    sheet: Sheet, key: str, row: np.ndarray, length: float
) -> tuple[np.ndarray, np.ndarray | None]:
    """Number of the slot of every row, and when slots begin if they have times; between
    these lies the `length` of a slot, s."""
    if key == "time":
        named = pd.Series(read_texts(sheet, key, row))
        read = pd.to_datetime(named, format="ISO8601", utc=True, errors="coerce")
        if read.isna().any():
            wrong = int(read.isna().to_numpy().argmax())
            raise bad_cell(sheet, wrong, key, "a time such as 2024-05-12T13:00Z")
        # Instants, not text: 9:00 would follow 10:00, and zones would differ.
        instants = read.dt.tz_localize(None).to_numpy("datetime64[s]")
        times, slot = np.unique(instants, return_inverse=True)
        apart = np.diff(times).astype(float)
        if (apart != length).any():
            first = int((apart != length).argmax())
            raise ValueError(
                f"{sheet.file}: after {times[first]}Z comes {times[first + 1]}Z, "
                f"{apart[first]:g} s later, but `slot_s` is {length:g}; add the rows "
                "that are missing, or correct `slot_s`."
            )
        return slot.reshape(-1), times
    allowed = CellRange(f"a whole number from 0 to {_MOST_SLOTS:,}", 0.0)
    values = read_numbers(sheet, key, row, allowed, needed=True)
    wrong = (values != np.round(values)) | (values > _MOST_SLOTS)
    if wrong.any():
        raise bad_cell(sheet, int(wrong.argmax()), key, allowed.words)
    return values.astype(int), None


def _name(key: str, slot: int, times: np.ndarray | None) -> str:
    return f"slot {slot}" if times is None else f"{key} {times[slot]}Z"


# --- Serving points that somebody measured: a table, each row on every pool of its
# GPU.

_NUMBERS: Final = {
    "gpus_per_replica": POSITIVE,
    "requests_per_s": POSITIVE,
    "ttft_p95_s": NOT_NEGATIVE,
    "tpot_p95_s": NOT_NEGATIVE,
    "power_w": POSITIVE,
}
_OPTIONAL: Final = ("sm_clock_mhz", "power_limit_w", "max_batch")
_WALL: Final = "wall_power_w"
"""Column of W at the wall, which stands for `power_w`."""
COLUMNS: Final = ("model", "gpu", *_NUMBERS, *_OPTIONAL)
"""Columns of a table of points, the optional ones last."""


def read_points(
    file: str,
    models: Sequence[Sequence[str]],
    pools: Sequence[Sequence[str]],
    hosts: Hosts,
) -> tuple[Rows, list[str]]:
    """The points of models and pools, each of which goes by any of its names, and
    remarks about what was left out; W at the wall become those of boards. Without
    objectives of latency: see `ask`.

    Raises `ValueError` in one sentence for a column that is missing or has another
    unit, a cell that cannot be, and a model without a point on any pool.
    """
    sheet = read_sheet(file)
    wall = _WALL in sheet.columns
    needed = {_WALL if wall and x == "power_w" else x: y for x, y in _NUMBERS.items()}
    check_units(sheet, [*needed, *_OPTIONAL])
    for column in ("model", "gpu", *needed):
        require_column(sheet, column, f"add `{column}`")
    row = np.arange(sheet.num_rows)
    numbers = {x: read_numbers(sheet, x, row, y, True) for x, y in needed.items()}
    n = numbers["gpus_per_replica"]
    if (n != np.round(n)).any():
        wrong = int((n != np.round(n)).argmax())
        raise bad_cell(sheet, wrong, "gpus_per_replica", "a whole number from 1 on")
    for x in _OPTIONAL:
        has = x in sheet.columns
        nothing = np.full(len(row), np.nan)
        numbers[x] = read_numbers(sheet, x, row, POSITIVE) if has else nothing
    point, model = _matches(read_texts(sheet, "model", row), models)
    again, pool = _matches(read_texts(sheet, "gpu", row)[point], pools)
    point, model = point[again], model[again]
    for number, names in enumerate(models):
        if not (model == number).any():
            gpus = name_list(dict.fromkeys(x for names in pools for x in names[:1]))
            raise ValueError(
                f"{file}: model `{names[0]}` has no row on a GPU of the pools "
                f"({gpus}); add its points, or leave the model out."
            )
    for number, names in enumerate(pools):
        if not (pool == number).any():
            gpu_words = name_list(dict.fromkeys(read_texts(sheet, "gpu", row)))
            raise ValueError(
                f"{file}: no row of a model of the fleet is on `gpu` '{names[0]}', "
                f"which a pool has; there are {gpu_words}; add its points, or correct "
                "or leave out the pool."
            )
    used = {x: column[point] for x, column in numbers.items()}
    if wall:
        gpus = used["gpus_per_replica"]
        used["power_w"] = _boards(sheet, hosts, pools, pool, point, gpus, used[_WALL])
    rows = Rows(
        model, pool, used["gpus_per_replica"], used["requests_per_s"], used["power_w"],
        used["ttft_p95_s"], used["tpot_p95_s"], used["sm_clock_mhz"] * MHz,
        used["power_limit_w"], used["max_batch"], point,
    )  # fmt: skip
    left = sheet.num_rows - len(np.unique(point))
    ignored = [x for x in sheet.columns if x not in (*COLUMNS, _WALL)]
    notes = [f"{file}: columns not used: {name_list(ignored)}."] if ignored else []
    if left:
        notes.append(f"{file}: {left} rows are of no model or no pool of the fleet.")
    return rows, notes


def _boards(
    sheet: Sheet,
    hosts: Hosts,
    pools: Sequence[Sequence[str]],
    pool: np.ndarray,
    point: np.ndarray,
    gpus: np.ndarray,
    wall: np.ndarray,
) -> Float[np.ndarray, " row"]:
    """W of the boards of points from those at the `wall`, which have their share of
    the host and no spare servers."""
    for number, site in enumerate(hosts.sites):
        if site is None and (pool == number).any():
            raise ValueError(
                f"{sheet.file}: `{_WALL}` is given, but a pool of `gpu` "
                f"'{pools[number][0]}' has no `node`; give its node, or `power_w`."
            )
    share = gpus * (hosts.each - hosts.idle)[pool]
    boards = (wall - share) / hosts.slope[pool]
    if (low := boards <= 0).any():
        first = int(low.argmax())
        least = f"more than its share of the host ({share[first]:.0f} W)"
        raise bad_cell(sheet, int(point[first]), _WALL, least)
    return boards


def _matches(
    named: np.ndarray, candidates: Sequence[Sequence[str]]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and the things that they name, one pair for each thing."""
    pairs = {
        (word, number) for number, names in enumerate(candidates) for word in names
    }
    things = pd.DataFrame(sorted(pairs), columns=["name", "thing"])
    rows = pd.DataFrame({"name": named, "row": np.arange(len(named))})
    merged = rows.merge(things, on="name").sort_values(["row", "thing"])
    return merged["row"].to_numpy(), merged["thing"].to_numpy()
