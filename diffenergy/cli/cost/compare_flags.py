"""Flags of `diffenergy compare`."""

import dataclasses

from ..parsing.field import argument, as_json, out


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
    """Time, energy and power of two or more estimates and their ratios to the first.

    \b
    Examples:
      diffenergy compare "gpt2 --gpu l40s" "gpt2 --gpu h100-sxm --batch 2"
      diffenergy compare before.json "gpt2 --gpu a10 --dtype fp16" --json
      diffenergy compare "gpt2 --gpu a10" "gpt2 --gpu l4" "gpt2 --gpu l40s"
    """

    a: str = argument("JSON file of `estimate --json`, or one quoted set of its flags.")
    b: str = argument("The same; ratios are B / A.")
    others: tuple[str, ...] | None = argument(
        "More of them, each beside its ratio to A.",
        metavar="C",
        needed=False,
        many=True,
    )
    as_json: bool = as_json()
    out: str | None = out("Also write .json.", ".json")
