"""`FLEET.toml` and the files that it names: a checked `Fleet`."""

import dataclasses
import difflib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...files import read_toml

_ANY: Final = (-math.inf, False, "a finite number")
_ABOVE: Final = (0.0, True, "a number above 0")
_FROM: Final = (0.0, False, "a number of at least 0")
_PUE: Final = (1.0, False, "a number of at least 1")
_TOP: Final = {"slot_s": _ABOVE, "headroom": _FROM}
_SERIES: Final = {"power_budget_w": _ABOVE, "carbon": _FROM, "price": _ANY}
_SITE: Final = {"pue": _PUE, **_SERIES}
_POOL: Final = {"count": _FROM, "parked_w": _FROM}
_MODEL: Final = {
    "input_len": _ABOVE,
    "output_len": _ABOVE,
    "slo_ttft_p95_s": _ABOVE,
    "slo_tpot_p95_s": _ABOVE,
    "start_j": _FROM,
    "start_s": _FROM,
}
_WORDS: Final = {
    "fleet": ("demand", "points"),
    "sites": ("name",),
    "pools": ("name", "gpu", "site"),
    "models": ("name", "model", "dtype"),
}
_TABLES: Final = ("sites", "pools", "models")
_WHOLE: Final = ("count", "input_len", "output_len")
_MOST_WHOLE: Final = 10_000_000
"""GPUs of a pool, tokens of a request; solvers lose what is small beside more."""


@dataclasses.dataclass(frozen=True)
class Site:
    """`power_budget_w`, `carbon`, `price`: a number, the path of a series, or None."""

    name: str
    pue: float = 1.0
    power_budget_w: float | str | None = None
    carbon: float | str | None = None
    price: float | str | None = None


@dataclasses.dataclass(frozen=True)
class Pool:
    """GPUs of one kind at one site."""

    name: str
    gpu: str
    count: int
    site: str
    parked_w: float | None = None


@dataclasses.dataclass(frozen=True)
class Model:
    """A model with its requests and objectives of latency (infinite: none)."""

    name: str
    model: str | None = None
    dtype: str | None = None
    input_len: int | None = None
    output_len: int | None = None
    slo_ttft_p95_s: float = math.inf
    slo_tpot_p95_s: float = math.inf
    start_j: float | None = None
    start_s: float | None = None


@dataclasses.dataclass(frozen=True)
class Fleet:
    """What `FLEET.toml` says; paths are absolute, or relative to where we are."""

    sites: tuple[Site, ...]
    pools: tuple[Pool, ...]
    models: tuple[Model, ...]
    demand: str | None = None
    points: str | None = None
    slot_s: float = 3600.0
    headroom: float = 0.0

    @property
    def files(self) -> list[str]:
        """Files that it names."""
        series = [getattr(x, key) for x in self.sites for key in _SERIES]
        named = [self.demand, self.points, *series]
        return [x for x in named if isinstance(x, str)]


def read_fleet(path: str) -> Fleet:
    """Reads and checks the FLEET.toml at `path`; files in it are looked for beside it.

    Raises `ValueError` in one sentence that names table, key, value and remedy.
    """
    content = read_toml(Path(path), "fleet", "fleet.toml")
    return _Reader(path, Path(path).parent).fleet(content)


@dataclasses.dataclass(frozen=True)
class _Reader:
    path: str
    folder: Path

    def fleet(self, content: Mapping[str, Any]) -> Fleet:
        plain = {x: y for x, y in content.items() if x not in _TABLES}
        top = self._entry(plain, "", _TOP, _WORDS["fleet"])
        for key in ("demand", "points"):
            if key in top:
                top[key] = self._file(top[key])
        sites, pools, models = (
            self._table(content, name, kind, rules)
            for name, kind, rules in (
                ("sites", Site, _SITE),
                ("pools", Pool, _POOL),
                ("models", Model, _MODEL),
            )
        )
        known = [site.name for site in sites]
        for pool in pools:
            if pool.site not in known:
                raise self._wrong(
                    f"pool `{pool.name}`: `site` is '{pool.site}'",
                    f"the name of one of the [[sites]]: {', '.join(known)}",
                )
        for model in models:
            if model.start_j is not None and model.start_s is not None:
                raise self._wrong(
                    f"model `{model.name}` has `start_j` and `start_s`", "one of both"
                )
        if not sum(pool.count for pool in pools):
            raise self._wrong("no pool has a GPU", "a `count` of at least 1 in one")
        return Fleet(sites, pools, models, **top)

    def _table(
        self, content: Mapping[str, Any], name: str, kind: Any, rules: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        entries = content.get(name)
        if not isinstance(entries, list) or not entries:
            raise self._wrong(f"[[{name}]] is missing", f"at least one [[{name}]]")
        fields = dataclasses.fields(kind)
        needed = [x.name for x in fields if x.default is dataclasses.MISSING]
        found = []
        for number, entry in enumerate(entries):
            where = f"[[{name}]] {number}"
            if not isinstance(entry, dict):
                raise self._wrong(f"{where} is no table", "a table")
            where = f"{where} ({entry.get('name', 'no name')})"
            for key in needed:
                if key not in entry:
                    raise self._wrong(f"{where}: `{key}` is missing", f"a `{key}`")
            read = self._entry(entry, f"{where}: ", rules, _WORDS[name])
            found.append(kind(**read))
        names = [x.name for x in found]
        twice = [x for x in names if names.count(x) > 1]
        if twice:
            raise self._wrong(f"[[{name}]]: `name` is '{twice[0]}' twice", "once")
        return tuple(found)

    def _entry(
        self,
        entry: Mapping[str, Any],
        where: str,
        rules: Mapping[str, Any],
        words: Sequence[str],
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in entry.items():
            if key in words:
                if not isinstance(value, str) or not value.strip():
                    raise self._wrong(f"{where}`{key}` is {value!r}", "a text")
                found[key] = value.strip()
            elif key in rules and key in _SERIES and isinstance(value, str):
                found[key] = self._series(where, key, value)
            elif key in rules:
                found[key] = self._number(where, key, value, rules[key])
            else:
                tables = [] if where else _TABLES
                near = difflib.get_close_matches(key, [*words, *rules, *tables], 1)
                hint = f"; did you mean `{near[0]}`?" if near else ""
                known = ", ".join(sorted([*words, *rules]))
                raise self._wrong(f"{where}`{key}` is no key{hint}", known, ending="")
        return found

    def _number(
        self, where: str, key: str, value: Any, rule: tuple[float, bool, str]
    ) -> float | int:
        least, open_, words = rule
        number = isinstance(value, int | float) and not isinstance(value, bool)
        good = number and math.isfinite(value)
        good = good and (value > least if open_ else value >= least)
        if key in _WHOLE:
            good = good and value <= _MOST_WHOLE and value == round(value)
            words = f"a whole {words.removeprefix('a ')}, up to {_MOST_WHOLE:,}"
        if not good:
            file = ", or the name of a .csv file" if key in _SERIES else ""
            raise self._wrong(f"{where}`{key}` is {value!r}", words + file)
        return int(value) if key in _WHOLE else float(value)

    def _series(self, where: str, key: str, value: str) -> str:
        if not value.lower().endswith((".csv", ".csv.gz")):
            unit = {"power_budget_w": "W", "carbon": "g/kWh", "price": "per MWh"}[key]
            raise self._wrong(
                f"{where}`{key}` is '{value}'",
                f"a number without a unit ({unit}), or the name of a .csv file",
            )
        return self._file(value)

    def _file(self, value: str) -> str:
        return str(self.folder / value)

    def _wrong(self, what: str, allowed: str, ending: str = "; correct it"):
        return ValueError(f"{self.path}: {what}; allowed is {allowed}{ending}.")
