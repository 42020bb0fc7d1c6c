"""Gathers: embedding look-ups, dispatch of rows."""

from typing import Final

import numpy as np

from ...dtypes import BYTES
from .._launch import Context, Fields, Launches
from .._ops import Field, Op, TraceClass
from . import stream_launches

OPS: Final = (Op("gather", (Field("rows"), Field("cols"), Field("dtype", "dtype"))),)

TRACE: Final = TraceClass(
    "gather",
    {
        20: r"reshape_and_cache|concat_and_cache",
        100: r"index|gather|scatter|cat(?![a-z])|cache|embedding|embeds?_|embs?_"
        r"|roll(?![a-z])|(?:down)?sample"
        r"|copy_page|permute|histogram|unique|transpose|recat|bounds_check"
        r"|nonzero|upsample|slice|write_?kv|concat",
    },
    shares=(0.0, 0.2, 0.4, 0.5),
)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row: every row of the table comes from DRAM."""
    elements = fields["rows"] * fields["cols"]
    size = elements * np.asarray(BYTES)[fields["dtype"]]
    return [stream_launches(size, size, cold=1.0, issue=elements * 4.0)]
