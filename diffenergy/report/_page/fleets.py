"""The page of a planned fleet."""

from typing import TYPE_CHECKING, Final

from ...charts import to_svg
from .._charts.fleet import fleet_charts
from .._format import percent
from .._tables.lines import assumed_line
from .._views.fleet import (
    amount,
    busiest,
    headroom,
    line,
    plan_rows,
    price_rows,
    site_rows,
    totals,
)
from .document import Part, document
from .markup import escape, paragraph, sentence, tag
from .parts.answer import tile
from .parts.tables import table

if TYPE_CHECKING:
    from ...fleet import FleetResult


_SCOPE: Final = "GPU boards times PUE: no hosts."


def fleet_html(result: "FleetResult", command: str) -> str:
    """The page, complete in itself; `command`: the line that gives its numbers."""
    summary = result.summary
    slot = busiest(summary)
    drawn = fleet_charts(result, line(result))
    drawn = {x: to_svg(y, f"chart-{x}") for x, y in drawn.items() if x != "fleet"}
    charts = [x for name, x in drawn.items() if name.startswith("pool-")]
    pools = tag("div", *charts, class_="pair" if len(charts) > 1 else None)
    plan = table("fleet-plan", "Plan", *plan_rows(summary, slot), tall=True)
    note = f"Slot {slot}, the nearest to a budget; latencies are 95th percentiles."
    columns, rows = price_rows(summary, slot)
    parts = [
        Part("pools", "Pools", "Who runs where", pools),
        Part(
            "power", "Power", "Power against budgets",
            drawn["power"] + table("fleet-sites", "Sites", *site_rows(summary)),
        ),
        Part(
            "plan", "Plan", f"The plan of slot {slot}",
            paragraph(note) + plan,
        ),
        Part(
            "prices", "Prices", "What one more would change",
            table("fleet-prices", "Prices", columns, rows, tall=len(rows) > 12),
        ),
    ]  # fmt: skip
    heading = f"A fleet planned for the least {summary['objective']}"
    what = f"{summary['slots']} slots of {summary['slot_s']:g} s"
    return document(
        heading, what, _answer(result), parts, command, ("fleet", summary),
        scope=_SCOPE,
    )  # fmt: skip


def _answer(result: "FleetResult") -> str:
    """The value with its bound, the other totals, headroom and remarks."""
    s = result.summary
    large = [
        _tile(f"Least {s['objective']}", amount(s, s["value"])),
        _tile("No plan is below", amount(s, s["bound"])),
        _tile("Gap", percent(s["gap"], 3)),
    ]
    small = [
        tile(name, s[key], unit, None)
        for name, key, unit in (
            ("Energy", "energy_j", "J"),
            ("Cost", "cost", s["currency"] or ""),
            ("Carbon", "carbon_g", "g"),
        )
        if s[key] is not None
    ]
    assumed = [assumed_line(s)] if s["assumed"] else []
    return "".join(
        [
            paragraph(sentence(line(result)), "lead"),
            tag("dl", *large, class_="tiles large"),
            tag("dl", *small, class_="tiles small"),
            *(paragraph(sentence(x)) for x in [totals(s), *assumed, *result.notes]),
            *(paragraph(sentence(x), "advice") for x in headroom(s)),
        ]
    )


def _tile(name: str, text: str) -> str:
    shown = tag("dd", escape(text), class_="figure")
    return tag("div", tag("dt", escape(name)), shown)
