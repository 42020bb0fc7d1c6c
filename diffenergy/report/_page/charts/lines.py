"""Charts of lines: points that can be read one by one, answers as large marks."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .figures import Axis, Drawn, Panel, figure, line, mark, words

Places = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """A curve through points that `texts` tell of; `chosen`: the answer; `labels`: what
    is written beside it, of its panel and the places of its points."""

    name: str
    points: Places
    texts: Sequence[str]
    chosen: tuple[float, float] | None = None
    labels: Callable[[Panel, Places], list[str]] | None = None


def line_chart(
    identity: str,
    title: str,
    caption: str,
    lines: Sequence[Line],
    axes: Callable[[float], tuple[Axis, Axis]],
    height: float,
    width: float,
    *,
    keys: Sequence[tuple[str, str]],
    left: float = 52.0,
    point: float | None = 2.6,
    end: tuple[float, str] | None = None,
) -> str:
    """Its HTML. `axes`: across and up, at a width; `point`: radius of the points, None:
    not drawn; `end`: where lines end, and why."""

    def draw(across: float) -> Drawn:
        panel = Panel(left, 34.0, across - left - 16, height - 80, *axes(across))
        parts = [panel.frame(), *([] if end is None else _end(panel, *end))]
        places, marks = list[tuple[float, float]](), list[str]()
        for number, one in enumerate(lines):
            own = [panel.at(*place) for place in one.points]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in own)
            parts.append(f'<polyline points="{path}" class="curve s{number}"/>')
            if point is not None:
                parts += [
                    mark(*at, point, number % 4, f"point c{number}") for at in own
                ]
            if one.labels is not None:
                parts += one.labels(panel, own)
            if one.chosen is not None:
                at = panel.at(*one.chosen)
                marks.append(mark(*at, 7.0, number, f"chosen c{number}"))
            places += own
        return Drawn(height, [*parts, *marks], places)

    texts = [text for one in lines for text in one.texts]
    return figure(identity, title, caption, draw, texts, width=width, keys=keys)


def _end(panel: Panel, at: float, why: str) -> list[str]:
    """A dashed line from top to bottom, and its reason where no curve is."""
    x = panel.at(at, panel.y.low)[0]
    down = 12 if panel.y.log else panel.height - 8
    return [
        line(x, panel.top, x, panel.top + panel.height, "limit"),
        words(x - 6, panel.top + down, why, "tick halo end"),
    ]
