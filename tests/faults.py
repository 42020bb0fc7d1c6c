"""Faults that tests should notice: where the program can be broken, and how."""

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "diffenergy"
SWAPS: Final = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*",
    ast.Mod: "//", ast.Pow: "*", ast.BitAnd: "|", ast.BitOr: "&", ast.And: "or",
    ast.Or: "and", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in", ast.NotIn: "in",
    ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
NAMES: Final = {
    "min": "max", "minimum": "maximum", "argmin": "argmax", "any": "all",
    "floor": "ceil",
}  # fmt: skip
OTHER: Final = NAMES | {new: old for old, new in NAMES.items()}
KINDS: Final = (
    "operator", "constant", "min/max", "term", "condition", "index", "guard", "default"
)  # fmt: skip
Change = tuple[ast.AST, str, str]
"""Place, kind, and the text that replaces it."""


class Fault(NamedTuple):
    """One change of one file: bytes `start` to `end` of it become `now`."""

    room: str
    file: str
    line: int
    kind: str
    start: int
    end: int
    was: str
    now: str


def _number(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _larger(value: Any) -> str:
    """A number 10 % larger, the next integer at least; 1 instead of 0."""
    if isinstance(value, int):
        return str(max(value + 1, round(1.1 * value)))
    return repr(1.1 * value or 1.0)


def _operators(node: ast.AST) -> Iterator[Change]:
    """Swapped operators and dropped terms."""
    text = ast.unparse
    match node:
        case ast.BinOp(left, op, right) if type(op) in SWAPS:
            if "'" in (text(left)[0], text(right)[0]):
                return  # a sum of texts
            swapped = f"(({text(left)}) {SWAPS[type(op)]} ({text(right)}))"
            yield node, "operator", swapped
            yield node, "term", f"({text(left)})"
            if isinstance(op, ast.Add | ast.Mult):
                yield node, "term", f"({text(right)})"
        case ast.BoolOp(op, [first, *others]):
            rest = f" {SWAPS[type(op)]} ".join(f"({text(x)})" for x in others)
            yield node, "operator", f"(({text(first)}) {SWAPS[type(op)]} {rest})"
            yield node, "term", f"({text(first)})"
        case ast.Compare(left, [op], [right]):
            swapped = f"(({text(left)}) {SWAPS[type(op)]} ({text(right)}))"
            yield node, "operator", swapped
        case ast.AugAssign(target, op, value) if type(op) in SWAPS:
            other = SWAPS[type(op)]
            yield node, "operator", f"{text(target)} {other}= {text(value)}"
            yield node, "term", "pass"


def _branches(node: ast.AST) -> Iterator[Change]:
    """Negated conditions, of `where` too, and removed guards."""
    match node:
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            yield test, "condition", f"(not ({ast.unparse(test)}))"
        case ast.comprehension(ifs=tests):
            for test in tests:
                yield test, "condition", f"(not ({ast.unparse(test)}))"
        case ast.Call(ast.Attribute(attr="where") as where, [test, yes, no]):
            parts = ", ".join(map(ast.unparse, (test, no, yes)))
            yield node, "condition", f"{ast.unparse(where)}({parts})"
    leaves = ast.Return | ast.Raise | ast.Continue | ast.Break
    if isinstance(node, ast.If) and isinstance(node.body[-1], leaves):
        if not node.orelse:
            yield node, "guard", "pass"


def _numbers(node: ast.AST, inside: ast.AST) -> Iterator[Change]:
    """Constants, indices off by one, other defaults, min for max; `strict=True` of
    `zip` is an assertion."""
    places: list[Any] = []
    defaults: list[Any] = []
    match node:
        case ast.Subscript(slice=index):
            result = index.elts if isinstance(index, ast.Tuple) else [index]
            places = [x for x in result if _number(x) or isinstance(x, ast.UnaryOp)]
        case ast.Slice(lower, upper):
            places = [x for x in (lower, upper) if x]
        case ast.arguments(defaults=some, kw_defaults=others):
            defaults = [*some, *others]
        case ast.AnnAssign(value=value):
            defaults = [value]
        case ast.Call(func, arguments, words):
            places = arguments if ast.unparse(func) == "range" else []
            defaults = [word.value for word in words if word.arg != "strict"]
            got = getattr(func, "attr", "") in ("get", "pop")
            defaults += arguments[1:2] if got else []
        case ast.Name(name) | ast.Attribute(attr=name) if name in OTHER:
            yield node, "min/max", ast.unparse(node).removesuffix(name) + OTHER[name]
        case ast.Constant(value) if _number(node):
            if not isinstance(inside, ast.Subscript | ast.keyword | ast.Slice):
                yield node, "constant", _larger(value)
    for place in places:
        yield place, "index", f"({ast.unparse(place)} + 1)"
    for place in defaults:
        flag = isinstance(place, ast.Constant) and isinstance(place.value, bool)
        if flag or _number(place):
            now = str(not place.value) if flag else _larger(place.value)
            yield place, "default", now


def _nodes(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """(node, parent) of all that runs: no annotations, messages, imports, asserts."""
    silent = ast.JoinedStr | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            typing = name in ("annotation", "returns", "decorator_list")
            if isinstance(child, ast.AST) and not typing | isinstance(child, silent):
                yield child, node
                yield from _nodes(child)


def faults_of(room: str, path: Path) -> Iterator[Fault]:
    """Every fault of one file."""
    whole = path.read_bytes()
    starts = [0]
    for line in whole.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    file = path.relative_to(ROOT).as_posix()
    for node, inside in _nodes(ast.parse(whole)):
        changes = (*_operators(node), *_branches(node), *_numbers(node, inside))
        at: Any
        for at, kind, now in changes:
            start = starts[at.lineno - 1] + at.col_offset
            end = starts[at.end_lineno - 1] + at.end_col_offset
            was = whole[start:end].decode()
            yield Fault(room, file, at.lineno, kind, start, end, was, now)


def draw(rooms: list[str], number: int, seed: int) -> list[Fault]:
    """`number` different faults: room, kind and place each drawn evenly."""
    rng = random.Random(seed)
    pools: dict[tuple[str, str], list[Fault]] = {}
    for room in rooms:
        paths = sorted(PACKAGE.rglob("*.py"))
        paths = [x for x in paths if str(x.relative_to(PACKAGE)).startswith(room)]
        if not paths:
            raise SystemExit(f"`--rooms` has {room}; no path in diffenergy/ begins so.")
        for fault in (fault for path in paths for fault in faults_of(room, path)):
            pools.setdefault((room, fault.kind), []).append(fault)
    drawn: list[Fault] = []
    while len(drawn) < number and any(pools.values()):
        if pool := pools.get((rng.choice(rooms), rng.choice(KINDS)), []):
            drawn.append(pool.pop(rng.randrange(len(pool))))
    return drawn
