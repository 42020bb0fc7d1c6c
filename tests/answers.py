"""Figures of a page beside what its commands answer.

A figure is a number with a unit, or one that fills a cell of a table. What stands
between a command and the next command or heading quotes that command: each figure there
is one of the answer, in any prefix of the unit, rounded to the digits that the page
gives. A sign counts where the page writes one. Comments say what else is quoted:

- `<!-- also: diffenergy ... -->`: that command's answer too; `{0,1}` in it stands for
  a command with each of these;
- `<!-- 25 % = 1 - 521 / 693 -->`: that figure follows from other numbers of the text;
- `<!-- elsewhere: 15 s, 38 % -->`: these figures come from somewhere else;
- `<!-- elsewhere -->`: so do all from here on;
- `<!-- elsewhere, by SOURCE -->`: the same of the tables from here on to the next
  command or heading, and where their figures come from.

A table with figures stands below its command or below such a SOURCE (`unmarked`).
`renewed` writes stale figures as the answers have them.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_PREFIXES: Final = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6} | {
    "K": 1e3, "G": 1e9, "T": 1e12,
}  # fmt: skip
_PREFIXED: Final = {"s": "num", "J": "umk", "W": "mk", "Hz": "MG", "B": "KMGT"} | {
    "B/s": "MGT",
}  # fmt: skip
_UNITS: Final = {
    prefix + name: (name, _PREFIXES[prefix])
    for name, prefixes in _PREFIXED.items()
    for prefix in ("", *prefixes)
} | {x: (x, 1.0) for x in ("%", "J s", "mm2", "tokens/s", "SMs", "evaluations")}
"""Dimension and size of each unit."""
_UNIT: Final = "|".join(re.escape(x) for x in sorted(_UNITS, key=len, reverse=True))
_NUMBER: Final = r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
_READ: Final = re.compile(rf"({_NUMBER})(?: ?({_UNIT})(?![\w/]))?(?!\w)")
_RANGE: Final = re.compile(rf"({_NUMBER}) to ({_NUMBER}) ?({_UNIT})(?![\w/])")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_ALSO: Final = re.compile(r"<!-- also: (.*?) -->", re.DOTALL)
_FOLLOWS: Final = re.compile(r"<!-- (\S+) % = ([\d .+*/()-]+) -->")
_EXCEPT: Final = re.compile(r"<!-- elsewhere: (.*?) -->", re.DOTALL)
_REST: Final = re.compile(r"<!-- elsewhere(?:, by ([^>]*\S))? -->")
_PLACED: Final = re.compile(
    rf"({_NUMBER})(?:\s?({_UNIT})(?![\w/])|(?=\s+to\s+{_NUMBER}\s?({_UNIT})(?![\w/])))?"
    r"(?!\w)"
)
"""A number where it stands, over lines; the unit of a range is the third group."""
_CODE: Final = re.compile(r"`[^`]*`")
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_QUOTED: Final = re.compile(r"`[^`]*`|\[[^]]*\]\([^)]*\)")
"""Code and links, whose numbers are no figures of a cell."""
_CELL: Final = re.compile(
    rf"[*~<]*{_NUMBER}(?: ?(?:{_UNIT}))?\**(?: *[/(;,] .*| *\(.*)?"
)
"""A cell that begins with a figure."""
_RUNS: Final = re.compile(r"\s*```(sh|bash|console|python)\b")


class Figure(NamedTuple):
    """A number as it is written; no unit: `None`."""

    text: str
    unit: str | None

    @property
    def value(self) -> float:
        """The number, in its unit."""
        return float(self.text.replace(",", ""))

    @property
    def step(self) -> float:
        """One of the last digit that is given."""
        digits, _, power = self.text.partition("e")
        return 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))

    def agrees(self, answer: "Figure") -> bool:
        """Whether it is the answer's number, rounded."""
        value = answer.value
        if self.unit is not None and answer.unit is not None:
            (mine, size), (other, of_other) = _UNITS[self.unit], _UNITS[answer.unit]
            if mine != other:
                return False
            value *= of_other / size
        signed = self.text[0] in "+-"
        miss = abs(self.value - value) if signed else abs(self.value - abs(value))
        return miss <= 0.5 * self.step * (1 + 1e-6)

    def __str__(self) -> str:
        return self.text if self.unit is None else f"{self.text} {self.unit}"


def numbers(text: str) -> Iterator[Figure]:
    """All numbers of a text; both ends of a range have its unit."""
    flat = _RANGE.sub(r"\1 \3 to \2 \3", " ".join(text.split()))
    for figures in _READ.finditer(flat):
        yield Figure(figures[1].rstrip(","), figures[2])


def figures(text: str) -> list[Figure]:
    """The numbers of a text that have a unit."""
    return [figure for figure in numbers(text) if figure.unit is not None]


def below(text: str, line: int, length: int) -> str:
    """What a page says of a fenced block of `length` lines that opens at `line` (from
    1): the block and all up to the next command or heading."""
    lines = text.splitlines()
    block = lines[line : line + length]
    for said in lines[line + length + 1 :]:
        if said.startswith("#") or _RUNS.match(said) or _REST.search(said):
            break
        block.append(said)
    return "\n".join(block)


def also(said: str) -> list[str]:
    """Command lines that the text quotes besides.

    >>> also("<!-- also: diffenergy x --a {0,1} -->")
    ['diffenergy x --a 0', 'diffenergy x --a 1']
    """
    return [
        x for text in _ALSO.findall(said) for x in _expanded(" ".join(text.split()))
    ]


def _expanded(command: str) -> list[str]:
    choices = [words.split(",") for words in _BRACES.findall(command)]
    pattern = _BRACES.sub("{}", command)
    return [pattern.format(*words) for words in itertools.product(*choices)]


def tables(text: str) -> Iterator[tuple[int, list[str]]]:
    """Line (from 1) and cells of the body of every table, without code, links and
    comments."""
    lines, fenced = text.splitlines(), False
    for at, line in enumerate(lines):
        fenced ^= line.lstrip().startswith("```")
        if fenced or not line.startswith("|") or (at and lines[at - 1][:1] == "|"):
            continue
        body = itertools.takewhile(lambda x: x.startswith("|"), lines[at + 2 :])
        plain = (_QUOTED.sub("", _COMMENT.sub("", row)) for row in body)
        yield at + 1, [cell.strip() for row in plain for cell in row.split("|")]


def unmarked(text: str, answered: Iterable[tuple[int, int]]) -> list[int]:
    """Lines of the tables with figures that no command answers and of which no mark
    says where they come from; `answered`: line and length of each block of commands."""
    ends = {line + length + 1: (line, length) for line, length in answered}
    lines, wrong = text.splitlines(), []
    for at, cells in tables(text):
        if not any(map(_CELL.fullmatch, cells)):
            continue
        for above in range(at - 1, 0, -1):
            if (mark := _REST.search(lines[above - 1])) and mark[1]:
                break
            if (
                above in ends
                and lines[at - 1] in below(text, *ends[above]).splitlines()
            ):
                break
            if lines[above - 1].startswith("#") or above in ends:
                wrong.append(at)
                break
    return wrong


def mentioned(said: str) -> list[Figure]:
    """All figures of a text and of its tables, but those of comments."""
    cells = [cell for _, cells in tables(said) for cell in cells]
    filled = [x for cell in filter(_CELL.fullmatch, cells) for x in numbers(cell)]
    plain = [figure for figure in filled if figure.unit is None]
    return figures(_COMMENT.sub("", said)) + plain


def quoted(said: str) -> list[Figure]:
    """The figures that the answers are to have; raises if an exception is none."""
    figures = mentioned(said)
    from_elsewhere = [x for text in _EXCEPT.findall(said) for x in numbers(text)]
    for figure in [*from_elsewhere, *_worked_out(said, figures)]:
        if figure not in figures:
            raise ValueError(f"`{figure}` of a comment is not in the text: {said}")
        figures = [x for x in figures if x != figure]
    return figures


def _worked_out(said: str, figures: list[Figure]) -> Iterator[Figure]:
    """The figures that follow from others; raises where one does not."""
    for text, rule in _FOLLOWS.findall(said):
        figure, answers_numbers = Figure(text, "%"), {x.value for x in figures}
        used = {x.value for x in numbers(rule)} - {1.0}
        value = Figure(repr(100 * eval(rule)), "%")  # of digits and operators alone
        if not (used <= answers_numbers and figure.agrees(value)):
            raise ValueError(f"`{figure}` is not {rule}: {said}")
        yield figure


def unsaid(said: str, answers: Iterable[str]) -> list[str]:
    """The quoted figures that none of the answers has."""
    answers_numbers = [x for text in answers for x in numbers(text)]
    return [
        str(figure)
        for figure in quoted(said)
        if not any(figure.agrees(answer) for answer in answers_numbers)
    ]


def corrected(wrong: Iterable[str], answers: Iterable[str]) -> str:
    """Stale figures, each with the nearest one of the answers that has its unit.

    >>> corrected(["-16.50 %"], ["12 J, -17.436 %"])
    '-16.50 % (nearest: -17.436 %)'
    """
    answers_numbers = [x for text in answers for x in numbers(text)]
    return "; ".join(f"{text}{_nearest(text, answers_numbers)}" for text in wrong)


def _nearest(text: str, answers_numbers: Iterable[Figure]) -> str:
    (stale,) = numbers(text)
    size = 1.0 if stale.unit is None else _UNITS[stale.unit][1]

    def distance(x: Figure) -> float:
        other = 1.0 if x.unit is None else _UNITS[x.unit][1]
        mine, theirs = abs(stale.value) * size, abs(x.value) * other
        return abs(math.log(mine / theirs)) if mine and theirs else abs(mine - theirs)

    alike = [
        x
        for x in answers_numbers
        if (stale.unit and _UNITS[stale.unit][0]) == (x.unit and _UNITS[x.unit][0])
    ]
    return f" (nearest: {min(alike, key=distance)})" if alike else ""


def blanked(text: str) -> str:
    """The text with a sign in place of each figure and its unit."""
    return _PLACED.sub("#", text)


def renewed(said: str, answers: Iterable[str]) -> tuple[str, list[str]]:
    """The text with the figures that the answers have now, rounded as before, and the
    stale figures of which no answer says what they have become.

    A stale figure becomes the nearest number with its unit if that is within a quarter,
    at least twice as near as the next one, and nearest to no other stale figure; one
    with a sign takes none of the other sign.

    >>> renewed("4.0 s at 25 W", ["4.23 s"])
    ('4.2 s at 25 W', ['25 W'])
    """
    answers_numbers = [x for text in answers for x in numbers(text)]
    exempt = {Figure(text, "%") for text, _ in _FOLLOWS.findall(said)}
    exempt |= {x for text in _EXCEPT.findall(said) for x in numbers(text)}
    stale = {
        figure
        for figure in set(mentioned(said)) - exempt
        if not any(map(figure.agrees, answers_numbers))
    }
    nearest = {figure: _become(figure, answers_numbers) for figure in stale}
    into = [new for new in nearest.values() if new is not None]
    new = {x: y for x, y in nearest.items() if y is not None and into.count(y) == 1}
    lost = sorted(str(figure) for figure in stale - set(new))
    text = _replaced(said, new)
    worked_out = {
        Figure(before, "%"): _rounded(Figure(before, "%"), 100 * eval(rule))
        for before, rule in _FOLLOWS.findall(text)
    }
    return _replaced(text, worked_out), lost


def _become(stale: Figure, answers_numbers: Iterable[Figure]) -> Figure | None:
    """The figure as the answers give it now."""
    if not stale.value:
        return None
    name, size = _UNITS[stale.unit] if stale.unit else (None, 1.0)
    away: dict[Figure, float] = {}
    for x in answers_numbers:
        other, of_other = _UNITS[x.unit] if x.unit else (None, 1.0)
        opposite = stale.text[0] in "+-" and x.value * stale.value < 0
        if x.value and not opposite and (name is None or other == name):
            value = abs(x.value) * (of_other / size if name else 1.0)
            new = _rounded(stale, math.copysign(value, x.value))
            away[new] = min(
                away.get(new, math.inf), abs(math.log(value / abs(stale.value)))
            )
    near = sorted(away, key=away.__getitem__)
    if not near or away[near[0]] > math.log(1.25):
        return None
    if len(near) > 1 and away[near[1]] < 2 * away[near[0]]:
        return None
    return near[0]


def _rounded(like: Figure, value: float) -> Figure:
    """A value with the digits, the sign and the commas of another figure."""
    digits = len(like.text.partition("e")[0].partition(".")[2])
    sign = "+" if like.text[0] == "+" else "-" if like.text[0] == "-" else ""
    comma = "," if "," in like.text or abs(like.value) < 1000 <= abs(value) else ""
    if "e" in like.text:
        text = f"{abs(value):.{digits}e}"
    else:
        text = f"{abs(value):{comma}.{digits}f}"
    if sign:
        sign = "-" if value < 0 else "+"
    return Figure(sign + text, like.unit)


def _replaced(said: str, new: dict[Figure, Figure]) -> str:
    """The text with other figures; in comments only the terms of rules change."""
    terms = {old.text: figure.text for old, figure in new.items()}
    rules = [match.span() for match in _FOLLOWS.finditer(said)]
    comments = [match.span() for match in _COMMENT.finditer(said)]
    code = [match.span() for match in _CODE.finditer(said)]

    def inside(spans: list[tuple[int, int]], at: int) -> bool:
        return any(start <= at < end for start, end in spans)

    def figure(match: re.Match[str]) -> str:
        text, at = match[1].rstrip(","), match.start()
        line = said[said.rfind("\n", 0, at) + 1 :]
        unit = match[2] or match[3]
        if inside(rules, at):
            become = new.get(Figure(text, unit)) if unit else None
            after = become.text if become else terms.get(text, text)
        elif inside(comments, at) or (
            unit is None and (inside(code, at) or not line.startswith("|"))
        ):
            return match[0]
        else:
            after = new.get(Figure(text, unit), Figure(text, unit)).text
        return after + match[0][len(text) :]

    return _PLACED.sub(figure, said)
