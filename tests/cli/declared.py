"""Whether JSON is as it is declared: `undeclared(value, kind)`."""

import runpy
import types
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, is_typeddict

ROOT: Final = Path(__file__).parents[2]
REFERENCE: Final = runpy.run_path(str(ROOT / "docs" / "json_reference.py"))
"""The script that writes the page: which records the commands print."""


def check_answer(command: str, content: Any):
    """Fails unless the JSON of a command is one of the answers that are declared."""
    wrong = [undeclared(content, kind) for kind in REFERENCE["COMMANDS"][command]]
    assert not all(wrong), f"{command}: {min(wrong, key=len)}"


def undeclared(value: Any, kind: Any, where: str = "") -> list[str]:
    """What in `value` is not of the type `kind`, with its place."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind) and isinstance(value, dict):
        return _keys(value, kind, where)
    if origin in (Union, types.UnionType):
        return min((undeclared(value, part, where) for part in parts), key=len)
    if origin is list and isinstance(value, list):
        inside = [(f"{where}[{i}]", x) for i, x in enumerate(value)]
        return [y for at, x in inside for y in undeclared(x, parts[0], at)]
    if origin is dict and isinstance(value, dict):
        inside = [(f"{where}.{name}", x) for name, x in value.items()]
        return [y for at, x in inside for y in undeclared(x, parts[1], at)]
    fits = {float: int | float, Any: object}.get(kind, kind)
    plain = not origin and not is_typeddict(kind) and isinstance(value, fits)
    if plain and (kind in (bool, Any) or not isinstance(value, bool)):
        return []
    return [f"{where or 'it'} is {value!r:.40}, not {kind}"]


def _keys(value: dict[str, Any], record: Any, where: str) -> list[str]:
    known = REFERENCE["keys"](record)
    lacking = [f"{where}.{x} is missing" for x in record.__required_keys__ - set(value)]
    strange = [f"{where}.{x} is not declared" for x in value if x not in known]
    found = lacking if record in REFERENCE["OPEN"] else [*lacking, *strange]
    for name in known.keys() & set(value):
        found += undeclared(value[name], known[name].type, f"{where}.{name}")
    return found
