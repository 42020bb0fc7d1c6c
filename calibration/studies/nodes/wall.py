"""Wall power of servers that no constant saw, beside readings of their meters.

    python calibration/studies/nodes/wall.py node_power

Systems of MLPerf Inference under a power limit that their submissions state: boards are
taken at 0.99 of it. Each system is predicted from the others: `scale` of the parts and
the gain of its form factor are means of the other systems' fits. Three rows: the parts
alone; with its idle reading; with the idle reading and one under load, the first of the
table.
"""

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
GPUS: Final = {"H100-PCIe-80GBx8_TRT_MaxQ": "h100-pcie"}
AT_LIMIT: Final = 0.99


def bare(file: Any) -> Any:
    """A node file without what was read of it: its parts."""
    return msgspec.structs.replace(
        file, host_idle_w=None, gain=None, host_idle_sd=None, grade=None, provenance={}
    )


def wall(folder: Annotated[Path, typer.Argument(help="node_power")]) -> None:
    """Print a Markdown table of errors by what is known of the node."""
    import pandas as pd

    from diffenergy.files import facts
    from diffenergy.hardware import idle_power
    from diffenergy.nodes import Reading, build_node, fit_node, read_node

    rows: Any = pd.read_csv(folder / "mlperf_inference_wall_power.csv")
    limits = pd.read_csv(folder / "power_limits.csv")
    resting = rows[rows["system"].isin(IDLE)].groupby("system")["before_min_w"].median()
    rows = rows.merge(limits, on=["round", "system", "model", "scenario"])
    rows = rows[rows["gpu_cap_w"].notna() & rows["system"].isin(NODES)]

    systems: dict[str, Any] = {}
    for system, own in rows.groupby("system"):
        file, card, _ = read_node(NODES[str(system)], GPUS.get(str(system)))
        node = build_node(bare(file), card)
        idle = float(idle_power(card.spec, card.spec.sm_clock_min))
        board = AT_LIMIT * own["gpu_cap_w"].to_numpy(float)
        read = own["wall_w"].to_numpy(float)
        rest = Reading(float(own["before_min_w"].median()))
        loaded = [
            Reading(w, b / AT_LIMIT, True) for w, b in zip(read, board, strict=True)
        ]
        fitted = fit_node(bare(file), card, [rest, *loaded])
        systems[str(system)] = (file, card, node, idle, board, read, rest, fitted)

    idles: dict[str, float] = {}
    for system, name in IDLE.items():
        file, card, _ = read_node(name)
        node = build_node(bare(file), card)
        idles[system] = fit_node(bare(file), card, [Reading(resting[system])]).host_idle
        idles[system] /= node.host_idle

    results: dict[str, list[np.ndarray]] = {}
    inside: dict[str, list[np.ndarray]] = {}
    for system, (file, card, node, idle, board, read, rest, _) in systems.items():
        others = {k: x for k, x in systems.items() if k != system}
        ratios = [x[-1].host_idle / x[2].host_idle for x in others.values()]
        scale = np.log([*ratios, *idles.values()]).mean()
        module = node.gain == facts("hosts")["gain"]["sxm"][0]
        same = [x[-1].gain for x in others.values() if (x[2].gain == node.gain)]
        start = msgspec.structs.replace(
            bare(file),
            host_idle_w=float(node.host_idle * np.exp(scale)),
            host_idle_sd=facts("hosts")["scale_sd"],
            gain=float(np.mean(same)),
            gain_sd=facts("hosts")["gain"]["sxm" if module else "slot"][1],
        )
        cases = [
            ("its parts", [build_node(start, card)]),
            ("and one idle reading", [fit_node(start, card, [rest])]),
            (
                "and one reading under load",
                [
                    fit_node(start, card, [rest, Reading(w, b / AT_LIMIT, True)])
                    for w, b in zip(read, board, strict=True)
                ],
            ),
        ]
        for name, nodes in cases:
            for number, one in enumerate(nodes):
                others_rows = np.arange(len(read)) != number
                chosen = others_rows if len(nodes) > 1 else np.full(len(read), True)
                at = np.asarray(one.power(board, idle).wall)
                error = np.log(at / read)
                sd = np.asarray(one.spread(board, idle)) / at
                results.setdefault(name, []).append(np.expm1(error)[chosen])
                near = np.abs(error) < 1.645 * sd
                inside.setdefault(name, []).append(near[chosen])
    typer.echo("| known of the node | median | 90 % | at most | inside 5 to 95 % |")
    typer.echo("|---|---|---|---|---|")
    for name, found in results.items():
        error = 100 * np.abs(np.concatenate(found))
        share = 100 * np.concatenate(inside[name]).mean()
        typer.echo(
            f"| {name} | {np.median(error):.1f} % | {np.quantile(error, 0.9):.1f} % | "
            f"{error.max():.0f} % | {share:.0f} % |"
        )
    typer.echo(
        f"\n{sum(map(len, results['its parts']))} rows of {len(systems)} systems"
    )


if __name__ == "__main__":
    typer.run(wall)
