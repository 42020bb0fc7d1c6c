"""Flags of `diffenergy fleet`."""

from typing import Annotated

from ...fleet import FleetRequest
from ..flags import Json, out_file, plot_file


class Flags(FleetRequest):
    """Which model runs on which GPUs, how many, at which clock, slot by slot.

    FLEET.toml lists sites (power budget, carbon, price), pools of GPUs, models with
    their objectives of latency, and names a table of demand. The answer keeps GPUs and
    watts, and says how far it is at most from the best plan, what one more watt, GPU or
    request is worth, and how far demand can grow.

    \b
    Examples:
      diffenergy fleet fleet/fleet.toml
      diffenergy fleet fleet/fleet.toml --power-budget 40kW --json
      diffenergy fleet fleet/fleet.toml --objective carbon --out fleet.html
    """

    plot: Annotated[
        str | None, plot_file("Also draw who runs where and the power, .png or .svg.")
    ] = None
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file("Also write the plan (.csv) or .json.", ".csv", ".json"),
    ] = None
