"""Writes the tables of docs/reference/json.md from the declarations of the keys.

python docs/json_reference.py
"""

import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import (
    Any,
    Final,
    NamedTuple,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from diffenergy.codesign import _json_keys as codesign
from diffenergy.collectives._planning import json_keys as collective
from diffenergy.dvfs._asking import json_keys as dvfs
from diffenergy.estimator._answer import json_keys as estimate
from diffenergy.fitting import _result as fit
from diffenergy.fleet._answer import json_keys as fleet
from diffenergy.imports import _json_keys as imports
from diffenergy.measure import _json_keys as measure
from diffenergy.measurements import _json_keys as evaluate
from diffenergy.parallel._search import json_keys as plan
from diffenergy.parallel._stage_clocks import json_keys as stage_clocks
from diffenergy.report._tables import json_keys as known
from diffenergy.serving._answers import json_keys as serve
from diffenergy.sweeps import _json_keys as sweep

PAGE: Final = Path(__file__).parent / "reference" / "json.md"
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->\n"
COMMANDS: Final[Mapping[str, tuple[Any, ...]]] = {
    "estimate": (
        estimate.EstimateJson,
        estimate.SettingsJson,
        estimate.CombinationsJson,
    ),
    "serve": (serve.ServeJson,),
    "compare": (known.ComparisonJson,),
    "sweep": (sweep.SweepJson,),
    "import": (imports.ImportJson,),
    "dvfs": (dvfs.ModelScheduleJson, dvfs.TableScheduleJson),
    "codesign": (codesign.SearchJson, codesign.TilesJson),
    "plan": (plan.PlanJson, stage_clocks.StageClocksJson),
    "collective": (
        collective.CollectiveJson,
        list[collective.CollectiveJson],
        collective.VerifiedJson,
    ),
    "fleet": (fleet.FleetJson, fleet.NoFleetJson),
    "evaluate": (evaluate.EvaluateJson, evaluate.TraceErrorsJson),
    "fit": (fit.FitJson, fit.StoppedFitJson),
    "measure": (measure.MeasurePlanJson, measure.MeasureJson),
    "gpus": (list[known.GpuEntryJson], known.GpuJson),
    "models": (list[known.ModelEntryJson], known.ModelJson),
}
"""What `--json` of each command prints: one of these."""
OPEN: Final = (
    estimate.KernelJson, estimate.CombinationsJson, known.ComparisonJson,
)  # fmt: skip
"""Records that may have keys beside those declared; their docstring says which."""
WORDS: Final[Mapping[Any, str]] = {
    str: "text",
    float: "number",
    int: "integer",
    bool: "true or false",
    Any: "anything",
    types.NoneType: "null",
}
MODULES: Final = (
    estimate, serve, known, sweep, imports, dvfs, codesign, plan, stage_clocks,
    collective, fleet, evaluate, fit, measure,
)  # fmt: skip
RECORDS: Final = tuple(
    dict.fromkeys(x for of in MODULES for x in vars(of).values() if is_typeddict(x))
)


class Key(NamedTuple):
    """What is declared of a key; `unit` is "" where there is none."""

    type: Any
    unit: str
    meaning: str


def keys(record: Any) -> dict[str, Key]:
    """The keys of a record, in order."""
    found = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        bare = get_args(hint)[0] if get_origin(hint) is NotRequired else hint
        kind, *said = get_args(bare)
        found[name] = Key(kind, *(said if len(said) == 2 else ("", *said)))
    return found


def inside(kind: Any) -> Iterator[Any]:
    """The records that a type names."""
    if is_typeddict(kind):
        yield kind
    for part in get_args(kind):
        yield from inside(part)


def bases(record: Any) -> list[Any]:
    """The largest other records whose keys this one has too."""
    own = keys(record).items()
    found = [x for x in RECORDS if x is not record and keys(x).items() < own]
    return [
        x for x in found if not any(keys(x).items() < keys(y).items() for y in found)
    ]


def reached(kind: Any) -> Iterator[Any]:
    """The records of an answer: each, those that it extends, what it consists of."""
    for record in inside(kind):
        parts = [key.type for key in keys(record).values()]
        yield record
        for more in [*bases(record), *parts]:
            yield from reached(more)


def title(record: Any) -> str:
    """Its name in words.

    >>> title(estimate.PlanFiguresJson)
    'Plan figures'
    """
    return re.sub("(?<!^)[A-Z]", r" \g<0>", record.__name__[:-4]).capitalize()


def link(record: Any) -> str:
    """Its name, linked to its table."""
    return f"[{title(record)}](#{title(record).lower().replace(' ', '-')})"


def word(kind: Any) -> str:
    """A type in words."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        return link(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(map(word, parts))
    if origin is list:
        return f"list of {word(parts[0])}"
    if origin is dict:
        return f"{word(parts[1])}, by name"
    return WORDS[kind]


def section(record: Any) -> str:
    """The table of a record, below what its docstring says."""
    shared = bases(record)
    above = {name for base in shared for name in keys(base)}
    more = f" Beside these it has the keys of {', '.join(map(link, shared))}."
    said = " ".join((record.__doc__ or "").split()) + (more if shared else "")
    rows = [
        f"| `{name}`{'' if name in record.__required_keys__ else '?'} "
        f"| {word(key.type)} | {key.unit} | {key.meaning} |\n"
        for name, key in keys(record).items()
        if name not in above
    ]
    head = "| key | type | unit | meaning |\n|---|---|---|---|\n"
    return f"{said}\n\n{head}{''.join(rows)}\n"


def tables() -> str:
    """The tables of all commands, each record once."""
    text, told = "", set()
    for command, kinds in COMMANDS.items():
        text += f"## {command}\n\n"
        records = dict.fromkeys(x for kind in kinds for x in reached(kind))
        # the record with the name of the command stands below its heading
        for record in sorted(records, key=lambda x: title(x).lower() != command):
            if record not in told:
                named = title(record).lower() == command
                text += ("" if named else f"### {title(record)}\n\n") + section(record)
                told.add(record)
    return text


def written(page: str) -> str:
    """The page with the tables between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + tables() + END + after


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    print(f"{PAGE.name}: {len(RECORDS)} records")
