"""Figures of a page beside what its commands answer.

A figure is a number with a unit. What stands between a command and the next command or
heading quotes that command: each figure there is one of the answer, in any prefix of
the unit, rounded to the digits that the page gives. A sign counts where the page
writes one. Comments say what else is quoted:

- `<!-- also: diffenergy ... -->`: that command's answer too;
- `<!-- 25 % = 1 - 521 / 693 -->`: that figure follows from other numbers of the text;
- `<!-- elsewhere: 15 s, 38 % -->`: these figures come from somewhere else;
- `<!-- elsewhere -->`: so do all from here on.
"""

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
_REST: Final = "<!-- elsewhere -->"
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
    for found in _READ.finditer(flat):
        yield Figure(found[1].rstrip(","), found[2])


def figures(text: str) -> list[Figure]:
    """The numbers of a text that have a unit."""
    return [figure for figure in numbers(text) if figure.unit is not None]


def below(text: str, line: int, length: int) -> str:
    """What a page says of a fenced block of `length` lines that opens at `line` (from
    1): the block and all up to the next command or heading."""
    lines = text.splitlines()
    kept = lines[line : line + length]
    for said in lines[line + length + 1 :]:
        if said.startswith("#") or _RUNS.match(said) or _REST in said:
            break
        kept.append(said)
    return "\n".join(kept)


def also(said: str) -> list[str]:
    """Command lines that the text quotes besides."""
    return [" ".join(x.split()) for x in _ALSO.findall(said)]


def quoted(said: str) -> list[Figure]:
    """The figures that the answers are to have; raises if an exception is none."""
    found = figures(_COMMENT.sub("", said))
    from_elsewhere = [x for text in _EXCEPT.findall(said) for x in figures(text)]
    for figure in [*from_elsewhere, *_worked_out(said, found)]:
        if figure not in found:
            raise ValueError(f"`{figure}` of a comment is not in the text: {said}")
        found = [x for x in found if x != figure]
    return found


def _worked_out(said: str, found: list[Figure]) -> Iterator[Figure]:
    """The figures that follow from others; raises where one does not."""
    for text, rule in _FOLLOWS.findall(said):
        figure, given = Figure(text, "%"), {x.value for x in found}
        used = {x.value for x in numbers(rule)} - {1.0}
        value = Figure(repr(100 * eval(rule)), "%")  # of digits and operators alone
        if not (used <= given and figure.agrees(value)):
            raise ValueError(f"`{figure}` is not {rule}: {said}")
        yield figure


def unsaid(said: str, answers: Iterable[str]) -> list[str]:
    """The quoted figures that none of the answers has."""
    given = [x for text in answers for x in numbers(text)]
    return [
        str(figure)
        for figure in quoted(said)
        if not any(figure.agrees(answer) for answer in given)
    ]
