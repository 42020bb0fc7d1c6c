"""Keys of the JSON of `sweep`: type, unit, meaning."""

from typing import Annotated, TypedDict


class SweepJson(TypedDict):
    """A sweep that was run or found done."""

    out: Annotated[str, "file or folder of the rows"]
    spec_hash: Annotated[str, "of the SPEC.toml"]
    rows: Annotated[int, "of the sweep"]
    errors: Annotated[int, "rows without an answer, of the blocks computed now"]
    blocks: Annotated[int, "of the sweep"]
    computed: Annotated[int, "blocks computed now"]
    seconds: Annotated[float, "s", "of this run"]
    rows_per_s: Annotated[float | None, "1/s", "computed now; null: none were"]
