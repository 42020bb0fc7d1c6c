"""GPU files (`data/gpus/*.toml`): reading, checking, listing, writing.

A file holds the fields of `GpuSpec` as flat keys in SI, a few names, and the tables
`[published]`, `[physical]` and `[provenance]`. JAX is imported only where a `GpuSpec`
is built.
"""

import dataclasses
import difflib
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..files import read_toml
from ._fields import (
    ARCHITECTURES,
    CLOCK,
    FIELDS,
    MEMORIES,
    MMA_KINDS,
    OPTIONAL,
    SEGMENTS,
    WORDS,
    NumberField,
    unstated,
)

if TYPE_CHECKING:
    import diffenergy.corrections
    import diffenergy.hardware._spec

QUALITIES: Final = (
    "datasheet", "whitepaper", "vendor_docs", "measured", "derived", "recall", "guess",
)  # fmt: skip
"""How a number of a file can be known."""
_FOLDER: Final = Path(__file__).parent.parent / "data" / "gpus"


@dataclasses.dataclass(frozen=True)
class GpuCard:
    """A GPU with its names and sources; `spec` is the part that is computed with.

    `values` are the numbers as they stand in the file (SI), `corrections` names the
    bundled GPU whose corrections serve this one (None: those of its architecture),
    `mem_clocks` are the memory clocks that can be locked (Hz), `published` the
    vendor's dense peaks with the clock they are quoted at, `provenance` gives source,
    quality and year of every value.
    """

    name: str
    architecture: str
    mma: str
    memory: str
    process_node: str
    segment: str
    corrections: str | None
    aliases: tuple[str, ...]
    mem_clocks: tuple[float, ...]
    published: Mapping[str, Any]
    physical: Mapping[str, Any]
    provenance: Mapping[str, Any]
    values: Mapping[str, float]
    path: Path | None = None

    @property
    def served_as(self) -> str:
        """Name of the GPU whose fitted constants serve this one."""
        return self.corrections or self.name

    @property
    def tags(self) -> tuple[str, ...]:
        """Levels of the corrections that apply, general ones first; their factors
        multiply. MMA kinds are a chain: each has the factors of those before it."""
        kinds = MMA_KINDS[1 : MMA_KINDS.index(self.mma) + 1] or (self.mma,)
        return (
            f"architecture:{self.architecture}",
            *(f"mma:{kind}" for kind in kinds),
            f"memory:{self.memory}",
            f"node:{self.process_node}",
            f"gpu:{self.served_as}",
        )

    @functools.cached_property
    def spec(self) -> "diffenergy.hardware._spec.GpuSpec":
        """The numbers as a traced record, with the shipped corrections."""
        from ..corrections import read_corrections

        return self.served(read_corrections())

    def served(
        self, file: "diffenergy.corrections.CorrectionsFile"
    ) -> "diffenergy.hardware._spec.GpuSpec":
        """The numbers as a traced record, with the constants of a corrections file."""
        import jax

        from ._link_costs import known_links, usual_links
        from ._spec import GpuSpec

        with jax.ensure_compile_time_eval():  # it is kept: no tracers of a first caller
            if self.corrections is None:
                links = usual_links(self.architecture)
            else:
                kin = read_gpu(self.corrections)
                rate = kin.values["link_bandwidth"]
                links = known_links(kin.name, kin.architecture, rate)
            return GpuSpec(
                **self.values,  # pyright: ignore[reportArgumentType]
                mma_kind=float(MMA_KINDS.index(self.mma)),
                corrections=file.serve(self),
                links=links,
            )


def field_units() -> dict[str, str]:
    """Unit of every number of a GPU file, in the file's order."""
    return {field: rule.unit for field, rule in FIELDS.items()}


def gpu_names() -> list[str]:
    """Names of the bundled GPUs, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def read_gpu(name_or_path: str) -> GpuCard:
    """GPU by bundled name, by another spelling of it, or from a path ending in .toml.

    Case does not matter, and space, `_` and `-` are one: `NVIDIA H200`, `h200_sxm`
    and `h200-sxm` are the same GPU.

    Raises `ValueError` for an unknown name and for a file that is missing, is not
    TOML, or holds a value that cannot be right.

    >>> read_gpu("A100-PCIE-40GB").name
    'a100-pcie-40gb'
    """
    if name_or_path.lower().endswith(".toml"):
        return _read_file(Path(name_or_path))
    folded = _fold(name_or_path)
    if folded in gpu_names():
        return _read_bundled(folded)
    if folded in _spellings():
        return _read_bundled(_spellings()[folded])
    if folded and Path(name_or_path).is_dir():
        return _read_file(Path(name_or_path))
    raise ValueError(
        f"`gpu` is {name_or_path!r}, which is not a known GPU; "
        f"{_nearest(_close_gpus(folded))}, or give the path of a .toml file."
    )


def load_gpu(name: str) -> "diffenergy.hardware._spec.GpuSpec":
    """Numbers of a GPU, by name, other spelling or path: `read_gpu(name).spec`.

    >>> float(load_gpu("h100-sxm").num_sms)
    132.0
    """
    return read_gpu(name).spec


def with_fields(card: GpuCard, changes: Mapping[str, int | float]) -> GpuCard:
    """`card` with some numbers replaced (SI); they are checked like those of a file.

    Raises `ValueError` for a field that does not exist (naming the nearest ones) and
    for a value that cannot be right.

    >>> card = with_fields(read_gpu("h100-sxm"), {"dram_bandwidth": 6.7e12})
    >>> card.values["dram_bandwidth"]
    6700000000000.0
    """
    for field in changes:
        field_rule(field)
    values = {**card.values, **{k: _number(k, v) for k, v in changes.items()}}
    _check_together(values)
    source = {"source": "set by the caller", "quality": "guess", "year": 2026}
    given = dict.fromkeys(changes, source)
    return dataclasses.replace(
        card, values=values, provenance={**card.provenance, **given}
    )


def field_rule(field: str) -> NumberField:
    """Unit and range of a number of a GPU file.

    Raises `ValueError` for a field that does not exist, naming the nearest ones.

    >>> field_rule("tdp").unit
    'W'
    """
    if field not in FIELDS:
        raise ValueError(
            f"`{field}` is not a numeric field of a GPU; "
            f"{_nearest(_close(field, FIELDS))}."
        )
    return FIELDS[field]


# --- names


def _fold(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip().lower())


@functools.cache
def _spellings() -> dict[str, str]:
    """Folded spelling -> bundled name."""
    spellings = {}
    for name in gpu_names():
        for alias in (name, *_read_bundled(name).aliases):
            spellings[_fold(alias)] = name
    return spellings


@functools.cache
def _read_bundled(name: str) -> GpuCard:
    return _read_file(_FOLDER / f"{name}.toml")


def _close(word: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(word, list(known), n=3, cutoff=0.4)


def _close_gpus(folded: str) -> list[str]:
    """Bundled names that begin like `folded`, else up to three near it, else all."""
    known = _spellings()
    begin = [name for name in gpu_names() if folded and name.startswith(folded)]
    near = difflib.get_close_matches(folded, known, n=9, cutoff=0.5)
    return begin or list(dict.fromkeys(known[n] for n in near))[:3] or gpu_names()


def _nearest(names: list[str]) -> str:
    if not names:
        return "`diffenergy gpus show h100-sxm` lists those there are"
    return "nearest: " + ", ".join(f"`{name}`" for name in names)


# --- reading


def _read_file(path: Path) -> GpuCard:
    if path.is_dir():
        raise ValueError(f"`gpu` is {str(path)!r}, a folder; give one .toml file.")
    table = read_toml(path, "gpu", "h100-sxm")
    try:
        return _card(table, path)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _card(table: dict[str, Any], path: Path) -> GpuCard:
    """Card of a parsed file, each entry checked."""
    allowed = (*FIELDS, *WORDS, *OPTIONAL)
    for key in table:
        if key not in allowed:
            raise ValueError(
                f"`{key}` is not a key of a GPU file; {_nearest(_close(key, allowed))}."
            )
    for key in (*WORDS, *FIELDS):
        rule = FIELDS.get(key)
        if key not in table and (rule is None or rule.default is None):
            raise ValueError(
                f"`{key}` is missing; add it "
                + (f"({rule.unit})." if rule else "as text in quotes.")
            )
    words = {word: _word(word, table[word]) for word in WORDS}
    _check_words(words)
    values = {
        field: _number(field, table.get(field, rule.default))
        for field, rule in FIELDS.items()
    }
    _check_together(values)
    return GpuCard(
        **words,
        corrections=_corrections(table.get("corrections")),
        aliases=tuple(
            _word("aliases", alias) for alias in _given("aliases", table, [])
        ),
        mem_clocks=tuple(
            _number("mem_clocks", clock, CLOCK)
            for clock in _given("mem_clocks", table, [values["mem_clock"]])
        ),
        published=_given("published", table, {}),
        physical=_given("physical", table, {}),
        provenance={**unstated(table), **_provenance(table)},
        values=values,
        path=path,
    )


def _word(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"`{key}` is {value!r}; give text in quotes.")
    return value


def _check_words(words: dict[str, str]) -> None:
    for key, allowed in (("mma", MMA_KINDS), ("segment", SEGMENTS)):
        if words[key] not in allowed:
            raise ValueError(
                f"`{key}` is {words[key]!r}; allowed are {', '.join(allowed)}."
            )
    for key, known in (("architecture", ARCHITECTURES), ("memory", MEMORIES)):
        meant = _misspelt(words[key], known)
        if meant:
            raise ValueError(
                f"`{key}` is {words[key]!r}; write {meant} if that is meant: the word "
                "decides which fitted constants serve the GPU."
            )


def _misspelt(word: str, known: Iterable[str]) -> str:
    """The known word that `word` is a slip of; "" for a known and for a new one.

    Signs and cases apart nothing tells two generations from each other but their
    number, so that only words without one are compared more loosely.

    >>> _misspelt("Hoper", ARCHITECTURES), _misspelt("HBM-3E", MEMORIES)
    ('Hopper', 'HBM3e')
    >>> _misspelt("CDNA5", ARCHITECTURES), _misspelt("Rubin", ARCHITECTURES)
    ('', '')
    """
    if word in known:
        return ""
    plain = {_plain(other): other for other in known}
    cutoff = 0.8 if word.isalpha() else 1.0
    near = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else ""


def _plain(word: str) -> str:
    return re.sub("[^a-z0-9]", "", word.lower())


def _corrections(value: Any) -> str | None:
    if value is None:
        return None
    name = _fold(_word("corrections", value))
    if name not in gpu_names():
        raise ValueError(
            f"`corrections` is {value!r}, which is not a bundled GPU; "
            f"{_nearest(_close(name, gpu_names()))}, or leave the key out to take "
            f"those of the architecture."
        )
    return name


def _given(key: str, table: dict[str, Any], default: Any) -> Any:
    """A list or a table, as `default` is one."""
    value = table.get(key, default)
    if not isinstance(value, type(default)):
        lists = isinstance(default, list)
        what = "a list in brackets" if lists else f"a table, `[{key}]`"
        raise ValueError(f"`{key}` is {value!r}; give {what}.")
    return value


def _provenance(table: dict[str, Any]) -> dict[str, Any]:
    """The table `[provenance]`, if each entry says how one number is known."""
    known = (*FIELDS, *WORDS, *OPTIONAL, *_given("physical", table, {}))
    entries = _given("provenance", table, {})
    for field, entry in entries.items():
        where = f"`{field}` in `[provenance]`"
        if field not in known:
            raise ValueError(
                f"{where} is not a key of this file; {_nearest(_close(field, known))}."
            )
        if not isinstance(entry, dict):
            raise ValueError(f"{where} is {entry!r}; give {{ {', '.join(_STATED)} }}.")
        for key in (*_STATED, *entry):
            if key not in _STATED:
                raise ValueError(
                    f"{where} has `{key}`; allowed are {', '.join(_STATED)}."
                )
            says, right = _STATED[key]
            if key not in entry:
                raise ValueError(f"{where} has no `{key}`; add {says}.")
            if not right(entry[key]):
                raise ValueError(f"`{key}` of {where} is {entry[key]!r}; give {says}.")
    return entries


_STATED: Final[dict[str, tuple[str, Callable[[Any], bool]]]] = {
    "source": ("text in quotes", lambda x: isinstance(x, str) and bool(x.strip())),
    "quality": (f"one of {', '.join(QUALITIES)}", lambda x: x in QUALITIES),
    "year": ("a year such as 2024", lambda x: type(x) is int and 1990 <= x <= 2100),
}
"""What an entry of `[provenance]` says of a number: what to give, and whether it is."""


# --- checking numbers


def _number(field: str, value: Any, rule: NumberField | None = None) -> float:
    """`value` as a float, if it can be right for `field`."""
    rule = rule or FIELDS[field]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"`{field}` is {value!r}; give a number ({rule.unit}).")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(
            f"`{field}` is {value}; give a finite number ({rule.unit})."
        ) from None
    rule.check(field, number)
    return number


def _check_together(values: Mapping[str, float]) -> None:
    """Checks that need two numbers: order of limits, a voltage that never falls."""
    for low, high in (
        ("sm_clock_min", "sm_clock_max"),
        ("power_limit_min", "power_limit_max"),
    ):
        if values[low] > values[high]:
            raise ValueError(
                f"`{low}` is {values[low]:g}, above `{high}` {values[high]:g}; "
                f"lower the first or raise the second."
            )
    for share in ("fp32_doubled", "sm_clock_applied_share"):
        if not 0 <= values[share] <= 1:
            raise ValueError(
                f"`{share}` is {values[share]:g}; allowed are numbers from 0 to 1."
            )
    if values["ambient_temperature"] < -273.15:
        raise ValueError(
            f"`ambient_temperature` is {values['ambient_temperature']:g}; "
            f"give degrees Celsius, at least -273.15."
        )
    above_knee = max(0.0, values["sm_clock_max"] - values["vf_knee_clock"])
    if values["vf_slope"] + 2 * values["vf_curvature"] * above_knee < 0:
        raise ValueError(
            f"`vf_curvature` is {values['vf_curvature']:g}, with which the voltage "
            f"falls before `sm_clock_max`; raise it or `vf_slope`."
        )
