"""The page: a form for each command, from its declared request."""

import dataclasses
import functools
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Final

import msgspec

from ... import __version__
from ...charts import embedded, escape, tag
from ...report import page_script, page_style
from ...requests import Argument, Flag, accepts_type, choices, is_switch
from ..app import QUESTIONS
from ..flags import flag_name
from ..run import flags_of
from .jobs import fields_of

_FIRST: Final = (
    *("gpu", "phase", "batch", "input_len", "output_len", "dtype", "plan", "num_gpus"),
    *("rate", "concurrency", "max_batch", "sm_clock", "power_limit", "objective"),
    *("global_batch", "size", "collective", "search", "action", "name", "vary"),
)
"""Fields that are shown without unfolding the rest."""
_SLOW_CHARTS: Final = ("serve",)
"""Commands whose charts take many times the time of the answer: drawn on request."""
_CHARTS: Final = (
    '<div class="row"><label for="charts">charts (slow)</label><span class="in">'
    '<input id="charts" type="checkbox"></span></div>'
)
_LISTS: Final = 400
"""Names that the browser offers for a field at most."""


@functools.lru_cache(maxsize=64)
def page(name: str, names: tuple[str, ...], folder: Path | None) -> str:
    """HTML of the page of a command."""
    fields = fields_of(name, folder).values()
    shown = [x for x in fields if _is_first(*x)]
    rest = [x for x in fields if not _is_first(*x)]
    current: dict[str, Any] = {"aria_current": "page"}
    links = [
        tag("a", escape(x), href=f"/{x}", **(current if x == name else {}))
        for x in names
    ]
    folded = tag(
        "details",
        tag("summary", f"{len(rest)} more flags"),
        *(_row(*x) for x in rest),
        class_="more",
    )
    data = {"command": name, "answers_at_once": name in ("estimate", "gpus", "models")}
    return Template(_read("page.html")).substitute(
        title=escape(f"diffenergy {name}"),
        command=escape(name),
        lead=escape(_lead(name)),
        links="".join(links),
        fields="".join(_row(*x) for x in shown) + (folded if rest else ""),
        charts=_CHARTS if name in _SLOW_CHARTS else "",
        data=embedded("request", data),
        version=escape(__version__),
    )


def asset(file: str) -> tuple[str, str]:
    """Text and type of a file of the page; both empty for others."""
    match file:
        case "page.css":
            return page_style() + _read("page.css"), "text/css"
        case "blocks.js":
            return page_script(), "text/javascript"
        case "page.js":
            return _read("page.js"), "text/javascript"
    return "", ""


@functools.cache
def _read(name: str) -> str:
    folder = resources.files("diffenergy.cli.web")
    return (folder / name).read_text(encoding="utf-8")


def _lead(name: str) -> str:
    for lines in QUESTIONS.values():
        if name in lines:
            return lines[name]
    return (flags_of(name).__doc__ or "").strip().split("\n\n")[0]


def _is_first(field: Any, flag: Flag) -> bool:
    needed = field.default is dataclasses.MISSING
    return needed or isinstance(flag, Argument) or field.name in _FIRST


def _row(field: Any, flag: Flag) -> str:
    """A label, an input with its unit, and the help."""
    identity = f"field-{field.name}"
    text = field.name.replace("_", " ")
    needed = field.default is dataclasses.MISSING
    common: dict[str, Any] = {
        "id": identity, "name_": field.name, "data_flag": flag_name(field, flag),
        "aria_describedby": f"{identity}-help {identity}-error",
    }  # fmt: skip
    label = tag("label", escape(text), tag("b", " *") if needed else "", for_=identity)
    unit = ""
    if is_switch(field):
        control = _single("input", type="checkbox", **common)
    elif words := choices(field.type):
        first = tag("option", "", value="")
        options = (tag("option", escape(x), value=x) for x in map(str, words))
        control = tag("select", first, *options, **common)
    else:
        control, unit = _text(field, flag, needed, common)
    help_text = tag("p", escape(flag.help), id=f"{identity}-help", class_="help")
    error = tag("p", "", id=f"{identity}-error", class_="wrong", role="alert")
    inside = tag("span", control, tag("i", escape(unit)) if unit else "", class_="in")
    return tag("div", label, inside, help_text, error, class_="row")


def _text(
    field: Any, flag: Flag, needed: bool, common: dict[str, Any]
) -> tuple[str, str]:
    """An input for text or one number, and the unit beside it."""
    more: dict[str, Any] = {
        "type": "text",
        "autocomplete": "off",
        "spellcheck": "false",
    }
    unit = flag.metavar or ""
    if needed:
        more["required"] = "required"
    if accepts_type(field.type, int) and "[" not in unit:  # no list
        more |= {"type": "number", **_limits(field.type)}
    names = list(flag.completed())[:_LISTS] if flag.completed else []
    offered = ""
    if names:
        identity = f"{common['id']}-names"
        more["list"] = identity
        options = (tag("option", value=x) for x in names)
        offered = tag("datalist", *options, id=identity)
    default = field.default
    if isinstance(default, str | int | float) and not isinstance(default, bool):
        more["placeholder"] = (
            f"{default:g}" if isinstance(default, float) else str(default)
        )
    if flag.many:
        more["data_many"] = "many"
        unit = f"{unit or 'several'}; ..."
    return _single("input", **common, **more) + offered, unit.removesuffix("[,...]")


def _limits(hint: Any) -> dict[str, Any]:
    """Least and greatest value of one whole number, and its step."""
    schema = msgspec.json.schema(hint)
    one = next(x for x in schema.get("anyOf", [schema]) if x.get("type") == "integer")
    ends = {"min": one.get("minimum"), "max": one.get("maximum"), "step": 1}
    return {name: str(end) for name, end in ends.items() if end is not None}


def _single(name: str, **attributes: Any) -> str:
    """An element without content."""
    return tag(name, **attributes).removesuffix(f"</{name}>")
