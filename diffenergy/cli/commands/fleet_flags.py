"""Flags of `diffenergy fleet`."""

from typing import Annotated

from ...fleet import FleetRequest
from ...requests import Flag
from ..flags import Json, out_file, plot_file


class Flags(FleetRequest):
    """Plan which model runs on which GPUs, with how many replicas, at which clock.

    FLEET.toml lists sites (power budget, carbon, price), pools of GPUs and models with
    their latency limits, and names a table of demand by slot. The plan keeps within the
    GPUs and watts. The output states its distance from the best plan at most, what one
    more watt, GPU or request is worth, and how far demand can grow.

    \b
    Examples:
      diffenergy fleet fleet/fleet.toml
      diffenergy fleet fleet/fleet.toml --power-budget 40kW --json
      diffenergy fleet fleet/fleet.toml --objective carbon --out fleet.html
    """

    plot: Annotated[
        str | None, plot_file("Also draw who runs where and the power, .png or .svg.")
    ] = None
    power_trace: Annotated[
        str | None,
        Flag(
            "Write power of boards and sites by slot, .csv or .parquet.",
            "FILE",
            endings=(".csv", ".parquet"),
        ),
    ] = None
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file("Also write the plan (.csv) or .json.", ".csv", ".json"),
    ] = None
