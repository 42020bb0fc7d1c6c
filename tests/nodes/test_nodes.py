"""Servers: wall power by hand, what follows of it, and files that say only a part."""

import contextlib
import csv
import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import jax
import json_keys
import numpy as np
import pytest

import diffenergy as de
from diffenergy.cli import main
from diffenergy.hardware import read_gpu
from diffenergy.nodes import Site, load_node, node_names


def run(*words: str) -> dict[str, Any]:
    """JSON of a command, whose keys are those of the page."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*words, "--json"]) == 0
    json_keys.check(words[0], out.getvalue())
    return json.loads(out.getvalue())


def test_by_hand():
    """8 x 495 W; host 1657 + 0.066 (3960 - 8 x 71); S = 2 (5600 + 1.5 x 1607.6)."""
    for name, board, idle, *expected in (
        ("dgx-h200", 495.0, 71.0, 1880.9, 5840.9, 267.3, 6108.1),
        ("dgx-h200", 71.0, 71.0, 1657.0, 2225.0, 146.8, 2371.8),
        ("hgx-b200-water", 934.0, 140.0, 1732.6, 9204.6, 404.3, 9608.9),
    ):
        at = load_node(name).power(board, idle)
        figures = [at.host, at.dc, at.loss, at.wall]
        assert figures == pytest.approx(expected, abs=0.06)
    # MI300X: two CPUs of 120 W, 2 TB (3.8 W per 64 GB), ten NICs of 30 W, eight
    # retimers of 12 W and drives of 5 W, the board 60 W, fans 350 W; no switches
    parts = 240 + 32 * 3.8 + 300 + 96 + 40 + 60 + 350
    node = load_node("mi300x-8")
    assert node.host_idle == pytest.approx(0.89 * parts)
    assert node.psu_total == pytest.approx(2 * (8 * 750 + 1.5 * parts))
    rack = 36 * 80 + 72 * 30 + 9 * 478 + 18 * 240
    assert load_node("gb200-nvl72").host_idle == pytest.approx(0.89 * rack)


def test_every_file_is_a_node(tmp_path: Path):
    """Each can feed its boards; what it says of its numbers has a source. A reading of
    the idle wall is inverted."""
    for name in node_names():
        node = load_node(name)
        tdp = read_gpu(node.gpu).values["tdp"]
        at = node.power(tdp, 0.1 * tdp)
        assert 0.85 < at.dc / at.wall < 0.98, name
        if node.grade != "datasheet":
            assert {"source", "quality", "year"} == {*node.provenance["host_idle_w"]}
        assert load_node("default", node.gpu).gpu == node.gpu
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\ngpu = ["h200-sxm"]\ngpus = 8\nidle_wall_w = 2400\n')
    node = load_node(str(path))
    assert node.power(IDLE, IDLE).wall == pytest.approx(2400, rel=1e-6)
    assert (node.grade, node.gain) == ("transferred", 0.06)


def test_shares_of_a_node_and_several():
    node = load_node("dgx-h200")
    full = node.power(495.0, 71.0).wall
    assert node.power(495.0, 71.0, gpus=4).wall == pytest.approx(full / 2)
    assert node.power(495.0, 71.0, gpus=16).wall == pytest.approx(2 * full)
    # all of the host for half of the boards
    at = node.power(495.0, 71.0, gpus=4, whole=True)
    assert at.host == pytest.approx(1657 + 0.066 * 4 * (495 - 71))
    host = node.power(495.0, 71.0, gpus=12, whole=True).host
    assert host == pytest.approx(2 * 1657 + 0.066 * 12 * (495 - 71))
    # the tangent is that of the curve; JAX differentiates it by everything
    board = 495.0
    slope = jax.grad(lambda p: node.power(p, 71.0).wall)(board)
    base, by_hand = node.line(board, 71.0)
    assert float(slope) == pytest.approx(8 * by_hand, rel=1e-5)
    assert base + by_hand * 8 * board == pytest.approx(node.power(board, 71.0).wall)
    # 1.066 (1.02792 + 0.0214 x 0.36453)
    assert by_hand == pytest.approx(1.1041, abs=1e-4)


BOARDS = {
    "energy_j": 8 * 495.0 * 10,
    "energy_j_per_token": 2.0,
    "time_s_p5_p95": [10.0, 10.0],
    "avg_power_w_p5_p95": [8 * 495.0] * 2,
    "energy_j_p5_p95": [8 * 495.0 * 10] * 2,
    "grade": "calibrated",
    "phase": "generate",
}


def test_parts_add_up():
    """Overhead / rest is PUE - 1; spare nodes idle at 2,372 W. SCI = E I + M: making
    it took 1,300 kg over four years, of which 10 s pass."""
    site = Site(load_node("dgx-h200"), 71.0, pue=1.09, carbon=400, price=90, spare=0.2)
    figures = site.figures([10.0], [495.0], 8, BOARDS)
    parts = figures["wall_energy_j_by_part"]
    assert sum(parts.values()) == pytest.approx(figures["site_energy_j"])
    assert parts["idle"] == pytest.approx(2371.8 * 10 * 0.25, rel=1e-4)
    busy = parts["accelerator"] + parts["host"]
    assert busy == pytest.approx(61081, rel=1e-5)
    assert parts["accelerator"] / busy == pytest.approx(3960 / 5840.9, rel=1e-4)
    assert parts["overhead"] == pytest.approx(0.09 * figures["wall_energy_j"])
    kwh = figures["site_energy_j"] / 3.6e6
    assert figures["carbon_g"] == pytest.approx(400 * kwh)
    assert figures["cost"] == pytest.approx(90 * kwh / 1000)
    assert figures["sci_g"] is None  # nobody said what making it emitted
    node = dataclasses.replace(site.node, embodied=1300.0)
    known = dataclasses.replace(site, node=node).figures([10.0], [495.0], 8, BOARDS)
    per_second = 1.3e6 * 10 / (4 * 365.25 * 86400)
    assert known["sci_g"] == pytest.approx(known["carbon_g"] + per_second)
    ratio = figures["wall_energy_j"] / BOARDS["energy_j"]
    assert figures["wall_energy_j_per_output_token"] == pytest.approx(2.0 * ratio)


def test_intervals_are_those_of_draws():
    """Time and power of the boards are drawn with their covariance."""
    node, rng = load_node("dgx-h200"), np.random.default_rng(0)
    time_sd, power_sd, n = 0.04, 0.06, 200_000
    time, power = np.exp(rng.normal(0, 1, (2, n)) * [[time_sd], [power_sd]])
    energy_sd = math.hypot(time_sd, power_sd)
    host = node.host_idle * np.exp(node.host_idle_sd * rng.normal(size=n))
    gain = node.gain + node.gain_sd * rng.normal(size=n)
    boards = 8 * 495.0 * power
    dc = boards + host + gain * (boards - 8 * 71.0)
    a, b, c = node.psu_loss
    wall = dc + node.psu_total * (a + b * dc / node.psu_total)
    wall = wall + c * dc**2 / node.psu_total
    scale = 1 + math.hypot(node.loss_sd, node.node_sd) * rng.normal(size=n)
    drawn = np.quantile(wall * scale * 10 * time, [0.05, 0.95])

    def interval(value: float, sd: float) -> list[float]:
        return [value * math.exp(-1.645 * sd), value * math.exp(1.645 * sd)]

    boards_alone = BOARDS | {
        "time_s_p5_p95": interval(10.0, time_sd),
        "avg_power_w_p5_p95": interval(3960.0, power_sd),
        "energy_j_p5_p95": interval(39600.0, energy_sd),
    }
    figures = Site(node, 71.0).figures([10.0], [495.0], 8, boards_alone)
    assert figures["wall_energy_j_p5_p95"] == pytest.approx(drawn.tolist(), rel=0.01)


GPT2 = ("estimate", "gpt2", "--gpu", "h200-sxm", "--batch", "8")
SPEC = read_gpu("h200-sxm").spec
IDLE = float(de.hardware.idle_power(SPEC, SPEC.sm_clock_min))


def test_an_estimate_at_the_wall():
    """Phases at their own power; without a node nothing changes."""
    boards = run(*GPT2)
    wall = run(*GPT2, "--node", "dgx-h200", "--pue", "1.2", "--carbon", "300")
    assert boards | {"assumed": wall["assumed"]} == {x: wall[x] for x in boards}
    assert run(*GPT2, "--node", "none") == boards
    node = load_node("dgx-h200")
    by_phase = sum(
        x["time_s"] * node.power(x["avg_power_w"], IDLE, gpus=1).wall
        for x in boards["phases"].values()
    )
    assert wall["wall_energy_j"] == pytest.approx(by_phase, rel=1e-6)
    assert wall["node"]["nodes"] == 1 / 8
    assert wall["assumed"]["node_share"] == "used"


def test_a_training_at_the_wall(tmp_path: Path):
    """A run is its steps; its energy is what the site takes. One line of the page says
    energy with interval and grade, compute, emissions."""
    path = tmp_path / "mine.toml"
    path.write_text('name="mine"\ngpu=["h200-sxm"]\ngpus=8\nembodied_kg=1300\n')
    more: Any = dict(phase="train", plan="dp=8", tokens=1e9, carbon=300.0, pue=1.1)
    for node, sci in (("default", "SCI unknown without"), (str(path), "SCI ")):
        result = de.estimate("gpt2", "h200-sxm", node=node, **more)
        json_keys.check("estimate", result.to_json())
        s, whole = result.summary, result.summary["run"]
        kwh = 1.1 * whole["steps"] * s["wall_energy_j"] / 3.6e6
        assert whole["site_energy_kwh"] == pytest.approx(kwh)
        assert s["wall_power_w"] == pytest.approx(s["wall_energy_j"] / s["time_s"])
        assert whole["flop"] == pytest.approx(whole["steps"] * s["model_flops"])
        interval = [x * kwh / s["wall_energy_j"] for x in s["wall_energy_j_p5_p95"]]
        assert whole["site_energy_kwh_p5_p95"] == pytest.approx(interval)
        (line,) = (x for x in result.blocks() if "training at the site" in str(x))
        for words in (" kWh, estimated, ", "accelerator ", " FLOP, ", "g CO2, ", sci):
            assert words in str(line)
        assert (whole["sci_g"] is None) == ("unknown" in str(line))


def test_the_least_energy_is_that_of_the_wall():
    """Hosts draw as long as the work lasts: they pay for higher clocks."""
    words = (*GPT2, "--sm-clock", "600:1500:60")
    boards, wall = run(*words), run(*words, "--node", "dgx-h200")
    energies = [x["wall_energy_j"] for x in wall["points"]]
    assert wall["best_energy"] == int(np.argmin(energies))
    assert wall["best_energy"] > boards["best_energy"]


@pytest.mark.slow
def test_a_sweep_at_the_wall(tmp_path: Path):
    """Each row is the estimate of it alone; without a node there are no columns."""
    spec, out = tmp_path / "spec.toml", tmp_path / "rows.csv"
    axes = '[axes]\nmodel = ["gpt2"]\ngpu = ["h200-sxm"]\nbatch = [1, 8]\n'
    spec.write_text(axes + '[fixed]\nnode = "dgx-h200"\npue = 1.2\n')
    assert main(["sweep", str(spec), "--out", str(out)]) == 0
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    for row in rows:
        words = ("estimate", "gpt2", "--gpu", "h200-sxm", "--batch", row["batch"])
        alone = run(*words, "--node", "dgx-h200", "--pue", "1.2")
        for name in ("wall_power_w", "wall_energy_j", "site_energy_j"):
            assert float(row[name]) == pytest.approx(alone[name], rel=1e-4)
    spec.write_text(axes)
    assert main(["sweep", str(spec), "--out", str(tmp_path / "boards.csv")]) == 0
    assert "wall" not in (tmp_path / "boards.csv").read_text()


def test_a_server_of_other_gpus_is_an_assumption():
    """A DGX A100 never housed an H100; its own GPUs and the usual node say nothing."""
    pairs = ("h100-sxm dgx-a100", "a100-sxm-40gb dgx-a100", "h100-sxm default")
    assumed = [
        de.estimate("gpt2", gpu, node=node).summary["assumed"].get("node")
        for gpu, node in map(str.split, pairs)
    ]
    other = "dgx-a100, a server of a100-sxm-80gb, with h100-sxm"
    assert assumed == [other, None, "dgx-h100"]
