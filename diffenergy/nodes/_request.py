"""`WallRequest`: the server and the site that GPUs stand in."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from .. import reading
from ..prices import per_mwh
from ..requests import Flag, Needs, Request, Text
from ..schema import MOST
from ._names import node_names

METER: Final = "boards alone are not what a meter reads; give both or leave it out"


def _node_files(name: str) -> tuple[str, ...]:
    return (name,) if name.lower().endswith(".toml") else ()


_Node = Annotated[str, Text("NAME|FILE|none", files=_node_files, completed=node_names)]
_Pue = Annotated[
    float, Meta(ge=1, le=10, description="allowed are numbers from 1 to 10")
]
_Rate = Annotated[float, Meta(ge=0, le=MOST, description="give a number of at least 0")]
_Price = Annotated[_Rate, Text("PRICE", per_mwh, take=per_mwh)]
_Share = Annotated[
    float, Meta(ge=0, lt=1, description="allowed are numbers from 0 to below 1")
]


class WallRequest(Request):
    """The server and the site that the GPUs stand in."""

    node: Annotated[
        _Node | None,
        "Server: energy and power at the wall; `default` takes the usual one of the "
        "GPU [none].",
    ] = None
    pue: Annotated[
        _Pue | None,
        Flag("Power of the site / power of its servers [1].", "X", reading.number),
        Needs("node", METER),
    ] = None
    carbon: Annotated[
        _Rate | None,
        Flag("Carbon intensity of the site's power, g/kWh.", "X", reading.number),
        Needs("node", METER),
    ] = None
    price: Annotated[
        _Price | None,
        "Price of the site's energy, such as 0.12EUR/kWh [per MWh].",
        Needs("node", METER),
    ] = None
    node_share: Annotated[
        Literal["used", "whole"] | None,
        "Share of a partly used server's host that counts [used].",
        Needs("node"),
    ] = None
    spare: Annotated[
        _Share | None,
        Flag(
            "Share of the servers that idle beside those in use [0].",
            "SHARE",
            reading.number,
        ),
        Needs("node"),
    ] = None
