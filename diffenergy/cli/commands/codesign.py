"""`diffenergy codesign`: hardware, clocks and tiles by gradient descent."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ...codesign import LIMITS, Effort, Part, SearchResult, search, tune
from ...estimator import PointRequest, SharingRequest, start_jax
from ...keys import json_text
from ...nodes import WallRequest
from ...requests import Request, explicit_fields, part
from ...workload import SPLIT_PHASES, ModelRequest, listing_lines, read_listings
from ..flags import as_flags, flag_names, naming_flags
from ..interruption import Interrupted, keeping
from ..progress import progress
from ..run import Outcome, outcome
from .codesign_flags import Flags, Limited
from .estimate_flags import Flags as EstimateFlags
from .estimate_flags import estimate_flags


class _MemberRequest(ModelRequest, SharingRequest):
    """Fields that each workload of a mix has for itself."""


class _Shared(PointRequest, WallRequest):
    """Fields that all workloads of a mix share."""


class _Designs(Effort):
    """Fields of a search: variables, objective, limits and effort."""

    vary: Any = ()
    goals: Any = None
    price: float | None = None


_RUN_AT: Final = {
    "sm_clock": ("--sm-clock", 1e-6),
    "mem_clock": ("--mem-clock", 1e-6),
    "power_cap": ("--power-limit", 1.0),
}
"""Flags that say where a design runs, and the number they take / SI."""


def run(flags: Flags) -> Outcome:
    """Searches a design, or tunes tiles."""
    start_jax()
    with naming_flags(Flags, _flagged):
        return _tiles(flags) if flags.tune_tiles else _design(flags)


def _design(flags: Flags) -> Outcome:
    request = flags
    limits = {
        metric: value
        for metric, name in LIMITS.items()
        if (value := getattr(request, name, None)) is not None
    }
    work = _mix(flags)
    effort = Effort(**part(Effort, flags))
    with keeping(), progress("search", effort.rounds, "rounds", "objective") as tell:
        result = search(
            work,
            flags.gpu,
            vary=flags.vary,
            limits=limits,
            goals=request.goals,
            price=request.price,
            effort=effort,
            progress=lambda done, _, best: tell(done, float(best)),
            **_shared(flags),
        )
    if result.best.violation > 0:
        line = f"interrupted before any design kept the limits; so far {result.refusal}"
        raise Interrupted(_flagged(line))

    def everything() -> str:
        return json_text({**result.summary, "path": result.path})

    written = f" and written to '{flags.out}'" if flags.out else ""
    cut = f"interrupted; the best design so far is shown{written}."
    name = Path(flags.out or "").stem.strip() or "design"
    return outcome(
        result,
        texts={".json": everything, ".toml": lambda: result.to_toml(name)},
        beside=dict.fromkeys(flags.beside, everything),
        notes=[*result.notes, *_unwritten(flags, result)],
        interrupted=cut if result.interrupted else "",
    )


def _tiles(flags: Flags) -> Outcome:
    names = flag_names(type(flags))
    for name in (*_fields_of(_Designs, flags), *_fields_of(Limited, flags)):
        if name not in ("goals", "workload"):
            raise ValueError(
                f"`{names[name]}` is given beside `--tune-tiles`, which tunes the "
                "tiles of one workload on one GPU; leave one out."
            )
    goals: Any = flags.goals
    goal = ",".join(goals or ("time",))
    if goal not in ("time", "energy"):
        raise ValueError(
            f"`goals` is '{goal}'; allowed with `--tune-tiles` are time and energy."
        )
    parts = _mix(flags)
    if len(parts) > 1:
        raise ValueError(
            "`--tune-tiles` tunes one workload; leave the others of `--workload` out."
        )
    one = parts[0]
    request = {**_shared(flags), **one.request}
    result = tune(one.work, flags.gpu, goal=goal, **request)
    return outcome(result, texts={".jsonl": lambda: listing_lines(result.listings)})


def _shared(flags: Flags) -> dict[str, Any]:
    """Fields that all workloads share; the price here is that of silicon."""
    return {name: x for name, x in part(_Shared, flags).items() if name != "price"}


def _mix(flags: Flags) -> list[Part]:
    """The workloads that MODEL and `--workload` ask for."""
    picked, quoted = _picked(flags.model, flags.workload)
    if flags.model is None:
        if not quoted:
            raise ValueError(
                'MODEL is missing; name one, or give `--workload "MODEL flags"`.'
            )
        for name in _fields_of(_MemberRequest, flags):
            raise ValueError(
                f"`{flag_names(Flags)[name]}` is given without MODEL; put it into the "
                "quotes of `--workload`."
            )
    works = [_quoted(text) for text in quoted]
    if flags.model is not None:
        member = part(_MemberRequest, flags)
        works.insert(0, (flags.model, {**member, "workload": picked}))
    weights = _weights(flags.weight, len(quoted), flags.model is not None)
    return [
        Part(model, weight, request)
        for (model, request), weight in zip(works, weights, strict=True)
    ]


def _picked(model: str | None, texts: Sequence[str]) -> tuple[str | None, list[str]]:
    """The workload of the listing MODEL, and the members of the mix."""
    if model is None or not model.lower().endswith(".jsonl") or not texts:
        return None, list(texts)
    names = {listing.name for listing in read_listings(model)}
    names |= {
        name.removesuffix(f"/{part}")
        for name in names
        for parts in SPLIT_PHASES
        for part in parts
    }
    picked = [text for text in texts if text in names]
    if len(picked) > 1:
        raise ValueError(
            f"`--workload` picks '{picked[0]}' and '{picked[1]}' of '{model}'; give "
            f'the second as `--workload "{model} --workload {picked[1]}"`.'
        )
    return next(iter(picked), None), [text for text in texts if text not in picked]


def _quoted(text: str) -> tuple[Any, dict[str, Any]]:
    """Model and request of a quoted workload."""
    flags = estimate_flags(text, "codesign")
    for name in [*(["gpu"] if flags.gpu else []), *_fields_of(_Shared, flags)]:
        raise ValueError(
            f"`{flag_names(EstimateFlags)[name]}` goes behind `codesign`, not into the "
            "quotes of `--workload`."
        )
    return flags.model, {**part(_MemberRequest, flags), "workload": flags.workload}


def _fields_of(kind: type[Request], request: Request) -> list[str]:
    """Fields of `kind` that differ from their default in a request."""
    return [name for name in explicit_fields(request) if name in part(kind, request)]


def _weights(weights: Sequence[float], members: int, model: bool) -> Sequence[float]:
    """Weight of every member of the mix: `model`, if there is one, then `members`."""
    if not weights:
        return [1.0] * (members + model)
    if not members:
        raise ValueError(
            f"`--weight` is '{weights[0]:g}', but there is one workload; give others "
            'with `--workload "MODEL flags"`.'
        )
    if len(weights) == members + model:
        return weights
    if len(weights) == members:
        return [1.0, *weights]
    raise ValueError(
        f"`--weight` is given {len(weights)} times for {members} `--workload`; give "
        "one for each, in their order"
        + (", MODEL's own before them." if model else ".")
    )


def _unwritten(flags: Flags, result: SearchResult) -> list[str]:
    """Notes on what the GPU file of a design lacks, with the flags that add it."""
    if not flags.beside:
        return []
    fields = result.best.fields
    flagged = [
        f"{flag} {fields[name] * scale:g}"
        for name, (flag, scale) in _RUN_AT.items()
        if name in fields
    ]
    missing = [f"`{' '.join(flagged)}`"] if flagged else []
    named = [name for name in ("tiles", "network") if name in fields]
    missing += [f"the {' and '.join(named)} of its JSON"] if named else []
    if not missing:
        return []
    return [
        f"'{flags.out}' is the hardware alone; the design runs with "
        f"{' and '.join(missing)}."
    ]


def _flagged(text: str) -> str:
    """Errors of the room in the words of the command line."""
    text = re.sub(
        r"^([^`]*: )(`\w+`.*)",
        lambda match: match[1] + as_flags(match[2], EstimateFlags),
        text,
    )
    flags = {metric: f"--{name.replace('_', '-')}" for metric, name in LIMITS.items()}
    text = re.sub(r"`limits\['(\w+)'\]`", lambda match: f"`{flags[match[1]]}`", text)
    text = re.sub(r"`vary\['(\w+)'\]`", r"`--vary \1`", text)
    text = text.replace("`phase='generate'`", "`--phase generate`")
    return text.replace("`price`", "`--price`")
