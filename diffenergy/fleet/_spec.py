"""`FLEET.toml` and the files that it names: a checked `Fleet`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta
from msgspec.structs import replace

from ..files import read_toml
from ..prices import PRICES, read_price
from ..schema import MOST, Finite, NotNegative, Positive, Table, Text, fitted

# --- `FLEET

_MOST_WHOLE: Final = 10_000_000
"""GPUs of a pool, tokens of a request; solvers lose what is small beside more."""
_UP_TO: Final = f"up to {_MOST_WHOLE:,}"
_OR_FILE: Final = "without a unit, or the name of a .csv file"
_SERIES: Final = ("power_budget_w", "carbon", "price")

_TABLE: Final = (".csv", ".csv.gz")
_DESCRIPTION: Final = (".toml", ".json")
"""Endings of tables, and of files of a GPU, a node or a model."""
_File = Annotated[str, Meta(pattern=r"(?i)\.csv(\.gz)?$")]
_Watts = Annotated[
    Positive | _File | None,
    Meta(description=f"give a number above 0 (W) {_OR_FILE}"),
]
_Grams = Annotated[
    NotNegative | _File | None,
    Meta(description=f"give a number of at least 0 (g/kWh) {_OR_FILE}"),
]
_Price = Annotated[
    Finite | Text | None,
    Meta(description=f"give {PRICES}, or the name of a .csv file"),
]
_Pue = Annotated[float, Meta(ge=1, le=MOST, description="give a number of at least 1")]
_Spare = Annotated[
    float, Meta(ge=0, lt=1, description="give a number from 0 to below 1")
]
_Number = Annotated[
    int,
    Meta(
        ge=0, le=_MOST_WHOLE, description=f"give a whole number of at least 0, {_UP_TO}"
    ),
]
_Length = Annotated[
    int,
    Meta(gt=0, le=_MOST_WHOLE, description=f"give a whole number above 0, {_UP_TO}"),
]


class Site(Table, frozen=True):
    """`power_budget_w`, `carbon`, `price`: a number, the path of a series, or None; a
    price also with its unit, such as "0.12 EUR/kWh"."""

    name: Text
    pue: _Pue = 1.0
    power_budget_w: _Watts = None
    carbon: _Grams = None
    price: _Price = None


class Pool(Table, frozen=True):
    """GPUs of one kind at one site. `node`: their server, by name or file; `spare`:
    share of the servers that idle beside those of its GPUs; `hosts`: whether servers
    without work stay on."""

    name: Text
    gpu: Text
    count: _Number
    site: Text
    parked_w: NotNegative | None = None
    node: Text | None = None
    spare: _Spare | None = None
    hosts: Literal["on", "off"] | None = None


class Model(Table, frozen=True):
    """A model with its requests and objectives of latency (infinite: none)."""

    name: Text
    model: Text | None = None
    dtype: Text | None = None
    input_len: _Length | None = None
    output_len: _Length | None = None
    slo_ttft_p95_s: Positive = math.inf
    slo_tpot_p95_s: Positive = math.inf
    start_j: NotNegative | None = None
    start_s: NotNegative | None = None


class Fleet(Table, frozen=True):
    """What `FLEET.toml` says; paths are absolute, or relative to where we are."""

    sites: Annotated[tuple[Site, ...], Meta(min_length=1)]
    pools: Annotated[tuple[Pool, ...], Meta(min_length=1)]
    models: Annotated[tuple[Model, ...], Meta(min_length=1)]
    demand: Text | None = None
    points: Text | None = None
    slot_s: Positive = 3600.0
    headroom: NotNegative = 0.0

    @property
    def files(self) -> list[str]:
        """Files that it names."""
        series = [getattr(x, key) for x in self.sites for key in _SERIES]
        tables = [self.demand, self.points, *series]
        others = [*(x.node for x in self.pools), *(x.gpu for x in self.pools)]
        others += [x.model for x in self.models]
        return [
            *(x for x in tables if is_file(x)),
            *(x for x in others if is_file(x, _DESCRIPTION)),
        ]


def is_file(value: Any, endings: tuple[str, ...] = _TABLE) -> bool:
    """Whether a value names a file with one of these endings, a table by default."""
    return isinstance(value, str) and value.lower().endswith(endings)


def read_fleet(path: str) -> Fleet:
    """Reads and checks the FLEET.toml at `path`; files in it are looked for beside it.

    Raises `ValueError` in one sentence that names table, key, value and remedy.
    """
    content = _tidy(read_toml(Path(path), "fleet", ""))
    fleet: Fleet = fitted(content, Fleet, f"{path}: ")
    _check(fleet, path)
    sites = tuple(_beside(path, site, _SERIES) for site in fleet.sites)
    pools = tuple(_beside(path, pool, ("node",)) for pool in fleet.pools)
    if fleet.points is None:  # else a GPU is the word that the table has
        pools = tuple(replace(x, gpu=_placed(path, x.gpu)) for x in pools)
    models = tuple(
        replace(x, model=x.model and _placed(path, x.model)) for x in fleet.models
    )
    tables = _beside(path, fleet, ("demand", "points"))
    return replace(tables, sites=sites, pools=pools, models=models)


def _placed(path: str, name: str) -> str:
    """The file or folder `name` beside the file at `path`; a name where there is
    none."""
    beside = Path(path).parent / name
    return str(beside) if beside.exists() else name


def _tidy(raw: Any) -> Any:
    """Texts without spaces around them, and whole numbers, such as 1e3, as such."""
    if isinstance(raw, dict):
        return {key: _tidy(value) for key, value in raw.items()}
    if isinstance(raw, list):
        return [_tidy(value) for value in raw]
    if isinstance(raw, str):
        return raw.strip()
    return int(raw) if isinstance(raw, float) and raw.is_integer() else raw


def _beside(path: str, table: Any, keys: Sequence[str]) -> Any:
    """A table with the files that it names beside that at `path`."""
    named = {key: getattr(table, key) for key in keys}
    files = {
        x: str(Path(path).parent / y)
        for x, y in named.items()
        if is_file(y, (*_TABLE, *_DESCRIPTION))
    }
    return replace(table, **files)


def _check(fleet: Fleet, path: str):
    """Raises `ValueError` for what no single table shows to be wrong."""
    for key in ("sites", "pools", "models"):
        names = [x.name for x in getattr(fleet, key)]
        if twice := [x for x in names if names.count(x) > 1]:
            raise ValueError(
                f"{path}: [[{key}]]: `name` is '{twice[0]}' twice; give it once."
            )
    for site in fleet.sites:
        if site.price is not None and not is_file(site.price):
            read_price(f"sites.{site.name}.price", site.price)
    site_names = [site.name for site in fleet.sites]
    for pool in fleet.pools:
        if pool.site not in site_names:
            raise ValueError(
                f"{path}: pool `{pool.name}`: `site` is '{pool.site}'; give the name "
                f"of one of the [[sites]]: {', '.join(site_names)}."
            )
    for model in fleet.models:
        if model.start_j is not None and model.start_s is not None:
            raise ValueError(
                f"{path}: model `{model.name}` has `start_j` and `start_s`; give one "
                "of both."
            )
    if not sum(pool.count for pool in fleet.pools):
        raise ValueError(
            f"{path}: no pool has a GPU; give a `count` of at least 1 in one."
        )
