"""Wall power of servers that no constant saw, beside readings of their meters.

    python calibration/studies/nodes/wall.py node_power

Systems of MLPerf Inference under a power limit that their submissions state: boards are
taken at 0.99 of it. Each system is predicted from the others: `scale` of the parts is
the sum of their hosts over that of their parts, as the shipped one is; the gain of the
form factor is the mean of their fits. Rows of the table: the
parts alone; with its idle reading; with that and one reading under load, each in turn;
with all of its readings but the one that is predicted. A line below has the parts with
the constants as they are shipped, which rest on these systems among others.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import typer

NODES: Final = {
    "A100-PCIe-80GB_aarch64x4_TRT_MaxQ": "pcie4-arm",
    "A100-PCIe-80GBx8_TRT_MaxQ": "pcie8",
    "A100-SXM-80GB_aarch64x8_TRT_MaxQ": "hgx-a100-arm",
    "A30x3_R4900G5_TRT_MaxQ": "a30-3",
    "DGX-A100_A100-SXM-80GBx8_TRT_MaxQ": "dgx-a100",
    "DGX-Station-A100_A100-SXM-80GBx4_TRT_MaxQ": "dgx-station-a100",
    "H100-PCIe-80GBx8_TRT_MaxQ": "pcie8",
    "H200-SXM-141GBx8_TRT_MaxQ": "dgx-h200",
    "SR780a_V3_B200SXMx8_TRT": "hgx-b200-water",
}
"""Bundled nodes whose parts the systems have."""
IDLE: Final = {
    "NE5260M5_A100-PCIe-80GBx2_TRT_MaxQ": "pcie2",
    "XE8545_A100_SXM_80GBx4_TRT_MaxQ": "xe8545",
}
"""Systems of which no limit is known: their idle readings alone count."""
IMMERSED: Final = "1xSMC-H100-SXM-80GB"
"""System of MLPerf Training: no row has a limit, but its bundled fit counts."""
BUNDLED: Final = ("hgx-h100-immersion", "hgx-b200-water")
"""Nodes whose boards run below their limits, which would bias `gain`: others learn from
their bundled fits, with boards by this model."""
GPUS: Final = {"H100-PCIe-80GBx8_TRT_MaxQ": "h100-pcie"}
AT_LIMIT: Final = 0.99


@dataclasses.dataclass(frozen=True)
class System:
    """A system: keys of its node without readings, GPU, the node of its parts, W of an
    idle board, W of boards and at the wall of its rows, readings, and its fit."""

    file: Any
    card: Any
    node: Any
    idle: float
    board: np.ndarray
    wall: np.ndarray
    rest: Any
    loaded: list[Any]
    fitted: Any


def bare(file: Any) -> Any:
    """A node file without what was read of it: its parts."""
    return msgspec.structs.replace(
        file, host_idle_w=None, gain=None, host_idle_sd=None, grade=None, provenance={}
    )


def systems_of(folder: Path) -> dict[str, System]:
    """All systems by name, those with idle readings alone without rows."""
    import pandas as pd

    from diffenergy.hardware import idle_power
    from diffenergy.nodes import Reading, build_node, fit_node, read_node

    def system(
        name: str, gpu: str | None, rest: Any, board: np.ndarray, wall: np.ndarray
    ) -> System:
        known, card, _ = read_node(name, gpu)
        file = bare(known)
        idle = float(idle_power(card.spec, card.spec.sm_clock_min))
        loaded = [
            Reading(w, b / AT_LIMIT, True) for w, b in zip(wall, board, strict=True)
        ]
        if name in BUNDLED:
            fitted = build_node(known, card)
        else:
            fitted = fit_node(file, card, [rest, *loaded])
        node = build_node(file, card)
        return System(file, card, node, idle, board, wall, rest, loaded, fitted)

    rows: Any = pd.read_csv(folder / "mlperf_inference_wall_power.csv")
    resting = rows.groupby("system")["before_min_w"].median()
    rows = rows.merge(
        pd.read_csv(folder / "power_limits.csv"),
        on=["round", "system", "model", "scenario"],
    )
    rows = rows[rows["gpu_cap_w"].notna()]
    none = np.zeros(0)
    systems = {IMMERSED: system("hgx-h100-immersion", None, None, none, none)}
    for name, node in (NODES | IDLE).items():
        mine = rows[rows["system"] == name]
        if name in IDLE:
            mine = mine[:0]
        rest = Reading(float(resting[name]))
        board = AT_LIMIT * mine["gpu_cap_w"].to_numpy(float)
        wall = mine["wall_w"].to_numpy(float)
        systems[name] = system(node, GPUS.get(name), rest, board, wall)
    return systems


def left_out(systems: dict[str, System], name: str) -> tuple[Any, Any]:
    """Keys and GPU of a system's node: its parts, with scale and gain of the others."""
    from diffenergy.files import facts

    own = systems[name]
    others = [x for k, x in systems.items() if k != name]
    module = own.node.gain == facts("hosts")["gain"]["sxm"][0]
    read = [x for x in others if x.node.gain == own.node.gain]
    gains = [x.fitted.gain for x in read if x.loaded or x.rest is None]
    hosts = sum(x.fitted.host_idle for x in others)
    scale = hosts / sum(x.node.host_idle for x in others)  # as the shipped one, of W
    start = msgspec.structs.replace(
        own.file,
        host_idle_w=float(own.node.host_idle * scale),
        host_idle_sd=facts("hosts")["scale_sd"],
        gain=float(np.mean(gains)),
        gain_sd=facts("hosts")["gain"]["sxm" if module else "slot"][1],
    )
    return start, own.card


def wall(folder: Annotated[Path, typer.Argument(help="node_power")]) -> None:
    """Print a Markdown table of errors by what is known of the node."""
    from diffenergy.nodes import build_node, fit_node

    systems = systems_of(folder)
    results: dict[str, list[np.ndarray]] = {}
    inside: dict[str, list[np.ndarray]] = {}
    shipped: list[np.ndarray] = []
    worst: dict[str, float] = {}
    for name, own in systems.items():
        number = len(own.wall)
        if not number:
            continue
        start, card = left_out(systems, name)
        every = np.arange(number)
        cases = [
            ("its parts", build_node(start, card), every),
            ("and one idle reading", fit_node(start, card, [own.rest]), every),
        ]
        for row in every:
            one = [own.rest, own.loaded[row]]
            rest = [own.rest, *(x for i, x in enumerate(own.loaded) if i != row)]
            load = fit_node(start, card, one), every[every != row]
            cases.append(("and one reading under load", *load))
            all_others = fit_node(start, card, rest), every[row : row + 1]
            cases.append(("all of its other readings", *all_others))
        for case, node, chosen in cases:
            at = np.asarray(node.power(own.board, own.idle).wall)
            error = np.log(at / own.wall)[chosen]
            sd = (np.asarray(node.spread(own.board, own.idle)) / at)[chosen]
            results.setdefault(case, []).append(np.expm1(error))
            inside.setdefault(case, []).append(np.abs(error) < 1.645 * sd)
        worst[name] = float(np.median(results["its parts"][-1]))
        at = np.asarray(own.node.power(own.board, own.idle).wall)
        shipped.append(at / own.wall - 1)
    typer.echo("| known of the node | median | 90 % | at most | inside 5 to 95 % |")
    typer.echo("|---|---|---|---|---|")
    for case, errors in results.items():
        share = 100 * np.concatenate(inside[case]).mean()
        typer.echo(f"| {case} | {_figures(errors)} | {share:.0f} % |")
    rows = sum(map(len, results["its parts"]))
    typer.echo(f"\n{rows} rows of {len(worst)} systems, {len(systems)} idle hosts")
    typer.echo(f"its parts with the shipped constants: {_figures(shipped)}")
    name = max(worst, key=lambda x: abs(worst[x]))
    rest = [x for x, k in zip(results["its parts"], worst, strict=True) if k != name]
    typer.echo(
        f"its parts without {name} ({100 * worst[name]:.1f} %): {_figures(rest)}"
    )


def _figures(errors: list[np.ndarray]) -> str:
    """Median, 90 % and largest error."""
    each = 100 * np.abs(np.concatenate(errors))
    return (
        f"{np.median(each):.1f} % | {np.quantile(each, 0.9):.1f} % | {each.max():.0f} %"
    )


if __name__ == "__main__":
    typer.run(wall)
