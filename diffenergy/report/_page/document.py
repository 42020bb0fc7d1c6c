"""A page as one HTML file, and a part of a notebook: blocks with their looks."""

import functools
import json
import uuid
from collections.abc import Iterable, Sequence
from importlib import resources
from string import Template
from typing import Any

from ... import __version__
from ...charts import embedded, escape, stylesheet, tag
from ...keys import json_text
from .._blocks import Block, Section
from .._tables.lines import BOARD_ONLY
from .blocks import slug, to_html, typeset


def build_page(
    line: str,
    blocks: Sequence[Block],
    content: Any,
    command: str = "",
    scope: str = "",
) -> str:
    """Return a result's page as one HTML file that includes style, script, charts and
    data.

    `line`: what was asked, a colon, and what came of it; `content`: the JSON that
    `command` prints, which the page has too; `scope`: what watts are of, if not of GPU
    boards alone.
    """
    heading, _, what = line.partition(": ")
    begin = [x for x in blocks if not isinstance(x, Section) and not _is_line(x, line)]
    parts = [x for x in blocks if isinstance(x, Section)]
    names = (x.link or x.title for x in parts)
    links = [tag("a", escape(x), href=f"#{slug(x)}") for x in names]
    return Template(_asset("page.html")).substitute(
        title=escape(heading),
        heading=escape(heading),
        what=typeset(what),
        style=page_style(),
        script=page_script(),
        brand=escape("diffenergy " + command.partition("diffenergy ")[2].split(" ")[0]),
        links=tag("nav", *links, aria_label="Parts of the page") if links else "",
        answer=to_html(begin),
        sections=to_html(parts),
        scope=escape(scope or BOARD_ONLY),
        version=escape(__version__),
        command=_command(command),
        data=embedded("answer-json", json.loads(json_text(content))),
    )


def build_fragment(blocks: Iterable[Block]) -> str:
    """Return HTML of blocks for a notebook, with styles limited to this fragment."""
    style = _asset("blocks.css") + stylesheet() + _asset("notebook.css")
    inside = f".diffenergy {{{style.replace(':root', '&')}}}"
    prefix = f"{uuid.uuid4().hex[:8]}-"  # a notebook has many answers
    return tag("style", inside) + tag(
        "div", to_html(blocks, prefix), class_="diffenergy"
    )


def page_style() -> str:
    """CSS of pages: blocks, charts and the page around them."""
    return _asset("blocks.css") + stylesheet() + _asset("page.css")


def page_script() -> str:
    """Script of pages: `diffenergy.enliven(element)` makes charts readable by pointer
    and keyboard, and tables sortable; it does so for the whole document at once."""
    return _asset("page.js")


def _is_line(block: Block, line: str) -> bool:
    """Return whether the page's header or footer already contains a line."""
    return isinstance(block, str) and (line.startswith(block) or block == BOARD_ONLY)


def _command(command: str) -> str:
    if not command:
        return ""
    shown = tag("pre", tag("code", escape(command)), tabindex="0")
    return tag("p", "The same figures as JSON:") + shown


@functools.cache
def _asset(name: str) -> str:
    folder = resources.files("diffenergy.report._page")
    return (folder / name).read_text(encoding="utf-8")
