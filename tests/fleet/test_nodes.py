"""Fleets at the wall: lines of servers by hand, plans against fleets without nodes
whose watts are those at the wall, and against all counts listed."""

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import json_keys
import pytest

import diffenergy as de
from diffenergy.cli import main
from diffenergy.nodes import load_node

from .builders import write_fleet

IDLE, TOP, SLOPE = 71.0, 700.0, (7920.8 - 2371.8) / (8 * (700 - 71))
EACH = (2371.8 - SLOPE * 8 * IDLE) / 8
"""W at the wall of a dgx-h200 whose boards idle, and at their rated power
(tests/nodes): 8 GPUs; W at the wall for a W of a board, and W for a GPU."""
FULL, CAPPED = ("m", "h200-sxm", 1, 10.0, 600.0), ("m", "h200-sxm", 1, 6.0, 390.0)
WIDE = ("k", "h200-sxm", 2, 9.0, 1000.0)


def wall(watts: float, gpus: int = 1) -> float:
    return SLOPE * watts + EACH * gpus


def planned(
    folder: Path, points: Any, demand: Any, pool: Any, objective: Any = "energy",
    models: Any = None, **site: Any
) -> Any:  # fmt: skip
    pools = [{"name": "g", "gpu": "h200-sxm", "count": 8, "site": "main"} | pool]
    sites = [{"name": "main"} | site]
    path = write_fleet(folder, points, demand, pools, sites, models)
    result = de.fleet.plan(path, objective=objective)
    json_keys.check("fleet", result.to_json())
    return result


NODE = {"node": "dgx-h200"}


@pytest.mark.parametrize(
    ("pool", "watts"),
    [  # three replicas of 600 W; five parked GPUs, at PUE 1.2
        (NODE, 3 * wall(600) + 5 * wall(IDLE)),
        (NODE | {"parked_w": 0}, 3 * wall(600) + 5 * wall(0)),
        (NODE | {"hosts": "off"}, 3 * wall(600)),
        # a fifth of the servers idles beside those of the eight GPUs
        (NODE | {"spare": 0.2}, 3 * wall(600) + 5 * wall(IDLE) + 2371.8 / 4),
        (NODE | {"spare": 0.2, "hosts": "off"}, 3 * (wall(600) + 2371.8 / 32)),
    ],
)
def test_one_pool_by_hand(tmp_path: Path, pool: Any, watts: float):
    result = planned(tmp_path, [FULL], [{"m": 30.0}], pool, pue=1.2)
    assert result.value == pytest.approx(1.2 * watts, rel=1e-4)
    s = result.summary
    parts = s["wall_energy_j_by_part"]
    assert sum(parts.values()) == pytest.approx(s["energy_j"])
    assert parts["overhead"] == pytest.approx(s["energy_j"] / 6)
    at = load_node("dgx-h200").power(600.0, IDLE)
    boards = 3 * wall(600) * at.boards / at.dc
    assert parts["accelerator"] == pytest.approx(boards, rel=1e-4)
    assert parts["host"] == pytest.approx(3 * wall(600) - boards, rel=1e-4)
    assert s["plan"][0]["power_w"] == 600
    assert ("hosts" in s["assumed"]) == ("hosts" in pool)


def test_servers_that_run_anyway_serve_before_those_that_are_off(tmp_path: Path):
    same = {"gpu": "h200-sxm", "count": 8, "site": "main"} | NODE
    pools = [same | {"name": "g", "hosts": "off"}, same | {"name": "h"}]
    path = write_fleet(tmp_path, [FULL], [{"m": 30.0}], pools, [{"name": "main"}])
    result = de.fleet.plan(path)
    assert [x["pool"] for x in result.summary["plan"]] == ["h"]
    assert result.value == pytest.approx(3 * wall(600) + 5 * wall(IDLE), rel=1e-4)
    assert "hosts" in result.summary["assumed"]


def test_the_line_is_never_below_the_server():
    """Exact where boards idle and at their rated power; 0.1 % above between."""
    node = load_node("dgx-h200")
    for board in (IDLE, 200.0, 400.0, TOP):
        true = node.power(board, IDLE).wall
        assert true * (1 - 1e-4) < 8 * wall(board) < true * 1.0012


def test_least_of_all_counts(tmp_path: Path):
    """Both models within 8 GPUs, and a budget at the meter that is kept to 0.1 %."""
    points, demand = [FULL, CAPPED, WIDE], [{"m": 34.0, "k": 8.0}]
    watts = []
    for counts in itertools.product(range(9), repeat=3):
        of = [*zip(counts, points, strict=True)]
        used = sum(n * x[2] for n, x in of)
        carried = [sum(n * x[3] for n, x in of if x[0] == model) for model in "mk"]
        if used <= 8 and carried[0] >= 34 and carried[1] >= 8:
            drawn = sum(n * wall(x[4], x[2]) for n, x in of)
            watts.append(1.2 * (drawn + (8 - used) * wall(IDLE)))
    least = min(watts)
    site: Any = {"pue": 1.2, "power_budget_w": 1.001 * least}
    result = planned(tmp_path, points, demand, NODE, **site)
    assert result.value == pytest.approx(least, rel=1e-4)
    assert result.summary["status"] == "optimal"
    with pytest.raises(de.fleet.NoPlan, match="at site `main`"):
        site["power_budget_w"] = 0.999 * least
        planned(tmp_path, points, demand, NODE, **site)


def test_it_is_the_fleet_of_wall_watts(tmp_path: Path):
    """Value, bounds, prices and headroom of a fleet with nodes are those of one whose
    points and parked GPUs have their watts at the wall; starts by the slope."""
    demand = [{"m": 20.0, "k": 4.0}, {"m": 41.0, "k": 9.0}]
    points = [FULL, CAPPED, WIDE]
    site: Any = {"pue": 1.3, "power_budget_w": 7700, "carbon": 300}
    starts = {"m": {"start_j": 500.0}}
    result = planned(tmp_path, points, demand, NODE, "carbon", starts, **site)
    walls = [(*x[:4], wall(x[4], x[2])) for x in points]
    parked = {"parked_w": wall(IDLE)}
    scaled = {"m": {"start_j": 500.0 * SLOPE}}
    plain = planned(tmp_path, walls, demand, parked, "carbon", scaled, **site)
    for key in ("value", "bound", "bound_by_prices"):
        assert result.summary[key] == pytest.approx(plain.summary[key], rel=1e-4)
    prices = [x.summary["shadow_prices"] for x in (result, plain)]
    for one, other in zip(*prices, strict=True):
        assert one["value"] == pytest.approx(other["value"], rel=1e-3, abs=1e-9)
    scale = [x.summary["headroom"]["demand_scale"] for x in (result, plain)]
    assert scale[0] == pytest.approx(scale[1], rel=1e-4)


def test_points_read_at_the_wall(tmp_path: Path):
    """`wall_power_w` in the table: boards follow, and the plan is the same; a host
    alone draws 218 W a GPU."""
    result = planned(tmp_path, [FULL, WIDE], [{"m": 30.0, "k": 8.0}], NODE)
    table = tmp_path / "points.csv"
    text = table.read_text().replace("power_w", "wall_power_w")
    for watts, gpus in ((600.0, 1), (1000.0, 2)):
        text = text.replace(repr(watts), repr(wall(watts, gpus)))
    table.write_text(text)
    again = de.fleet.plan(str(tmp_path / "fleet.toml"))
    assert again.value == pytest.approx(result.value, rel=1e-4)
    assert [x["power_w"] for x in again.summary["plan"]] == pytest.approx(
        [x["power_w"] for x in result.summary["plan"]], rel=1e-3
    )
    table.write_text(text.replace(repr(wall(600.0)), "200.0"))
    with pytest.raises(ValueError, match=r"`wall_power_w` is '200.0'.* \(218 W\)"):
        de.fleet.plan(str(tmp_path / "fleet.toml"))


def test_the_example_at_the_wall(tmp_path: Path):
    """The clean site spends 1.2 x 12 x 218 W of its 4.5 kW on hosts: little is left."""
    folder = Path("docs/examples/fleet")
    for path in folder.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    text = (folder / "fleet.toml").read_text().replace("parked_w = 30", 'node="pcie8"')
    (tmp_path / "fleet.toml").write_text(
        text.replace("parked_w = 70", 'node="dgx-h100"')
    )
    result = de.fleet.plan(str(tmp_path / "fleet.toml"), objective="carbon").summary
    assert result["status"] == "optimal"
    assert all(x["power_w"] <= (x["budget_w"] or 1e9) for x in result["site_power"])
    hosts = 1.2 * 12 * result["nodes"][0]["host_power_w_per_gpu"]
    assert hosts == pytest.approx(3140, rel=0.01)
    assert 11.4e3 < result["value"] < 13.3e3
    assert result["headroom"]["demand_scale"] == pytest.approx(1.65, abs=0.03)
    assert result["headroom"]["per_gpu"]["north-h100"] < 0


def test_power_over_the_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Two slots of an hour, of 30 and 50 requests a second: three and five replicas of
    600 W; the profile of the meters, and rows by slot."""
    pools = [{"name": "g", "gpu": "h200-sxm", "count": 8, "site": "main"} | NODE]
    demand = [{"m": 30.0}, {"m": 50.0}]
    path = write_fleet(tmp_path, [FULL], demand, pools, [{"name": "main"}])
    rows = tmp_path / "day.csv"
    assert main(["fleet", str(path), "--power-trace", str(rows), "--json"]) == 0
    text = capsys.readouterr().out
    json_keys.check("fleet", text)
    with rows.open() as file:
        first, second = csv.DictReader(file)
    day = [n * wall(600) + (8 - n) * wall(IDLE) for n in (3, 5)]
    for row, n, watts in ((first, 3, day[0]), (second, 5, day[1])):
        assert float(row["boards_w"]) == 600 * n
        assert row["site_w"] == row["site_main_w"]
        assert float(row["site_w"]) == pytest.approx(watts, rel=1e-4)
    profile = json.loads(text)["power_profile"]
    assert profile["of"] == "site"
    assert profile["mean_w"] == pytest.approx(sum(day) / 2, rel=1e-4)
    assert profile["swing_w"] == pytest.approx(day[1] - day[0], rel=1e-3)
