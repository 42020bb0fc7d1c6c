"""View of servers of crossed lists: a row for each combination."""

from typing import TYPE_CHECKING

from .._blocks import Block, Table
from .._format import Entry
from .._tables.lines import BOARD_ONLY, MODELLED, WALL, assumed_line, has_node
from .deployments import energy_of
from .serving import load_text, unavailable
from .sweep import HEADINGS, combination, crossed_lines, ordered_axes

if TYPE_CHECKING:
    from ...charts import Chart
    from ...serving import ServersResult

SCOPE = MODELLED


def line(result: "ServersResult") -> str:
    """Return a line with the number of points and the axes."""
    s = result.summary
    words = [HEADINGS[axis][0] for axis in s["axes"]]
    return f"{s['model']}: {len(s['points'])} of {' x '.join(words)}"


def title(s: Entry) -> str:
    """Return a line with what all servers share."""
    lengths = f"{s['input_len']} in, {s['output_len']} out"
    return f"{s['model']}, {lengths}, {load_text(s)}"


def blocks(result: "ServersResult") -> list[Block]:
    """Return assumptions, the table, the best servers, and failed combinations."""
    s = result.summary
    points = s["points"]
    wall = " at the wall" if has_node(s) else ""
    words = {
        "best_energy_per_token": f"least energy per output token{wall}",
        "best_tpot": "least time per output token",
    }
    best = [
        f"{text}: {combination(s, points[s[key]])}"
        for key, text in words.items()
        if s[key] is not None
    ]
    failed = [f"{combination(s, x)}: {x['error']}" for x in points if "error" in x]
    grades = dict.fromkeys(x["grade"] for x in points if "grade" in x)
    known = f"grade: {', '.join(grades)}"
    scope = WALL if any(has_node(x) for x in points) else BOARD_ONLY
    why = dict.fromkeys(line for x in points for line in unavailable(x))
    return [assumed_line(s), title(s), _table(s), *best, *failed, *why, known, scope]


def _table(s: Entry) -> Table:
    wall, key = ("wall ", "wall_") if has_node(s) else ("", "")

    def of(key: str, level: str = "") -> object:
        def value(point: Entry) -> float | None:
            entry = point.get(key)
            return entry[level] if level and entry else entry

        return value

    figures = (
        ("TTFT p95", of("ttft_s", "p95"), "s"),
        ("TPOT p95", of("tpot_s", "p95"), "s"),
        ("most req/s", of("saturation_request_rate_per_s"), "{:.4g}"),
        (f"{wall}W", of(f"{key or 'avg_'}power_w"), "{:.0f}"),
        (f"{wall}J/token", of(f"{key}energy_j_per_output_token"), "J"),
    )
    axes = [(HEADINGS[x][0], of(x), HEADINGS[x][1]) for x in ordered_axes(s)]
    texts = sum(HEADINGS[x][1] == "{}" for x in s["axes"])
    spare = ("most req/s", "TTFT p95", f"{wall}W")
    return Table([*axes, *figures], s["points"], left=texts, spare=spare)


def charts(result: "ServersResult") -> "dict[str, Chart]":
    """Return a chart of energy over time per output token, a line for each combination
    of the other axes."""
    from ...charts import Chart
    from .._charts.plans import crossed_chart

    s = result.summary
    points = [
        x
        | {
            "tpot_s": x["tpot_s"]["mean"],
            "energy_j_per_token": energy_of(x),
        }
        for x in s["points"]
        if x.get("tpot_s")
    ]
    if not points:
        why = "no token follows the first one, so that none has a time."
        return {"servers": Chart(title(s), [], why)}
    across, lines = crossed_lines(s, points)
    word = HEADINGS[across][0] if across else ""
    return {"servers": crossed_chart(points, across, word, lines, title(s))}
