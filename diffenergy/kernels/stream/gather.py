"""Gathers: embedding look-ups, dispatch of rows."""

from typing import Final

import numpy as np

from ...dtypes import BYTES
from .._shared.launch import Context, Fields, Launches
from .._shared.ops import Field, Op
from . import stream_launches

OPS: Final = (Op("gather", (Field("rows"), Field("cols"), Field("dtype", "dtype"))),)


def lower(op: str, fields: Fields, context: Context) -> list[Launches]:
    """One launch a row: every row of the table comes from DRAM."""
    elements = fields["rows"] * fields["cols"]
    size = elements * np.asarray(BYTES)[fields["dtype"]]
    return [stream_launches(size, size, cold=1.0, issue=elements * 4.0)]
