"""`diffenergy fleet`: table, JSON, files, refusals; what is wrong with its inputs."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Outcome

Run = Callable[..., Outcome]
EXAMPLE = Path("docs/examples/fleet")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A copy of the example that may be spoilt."""
    for path in EXAMPLE.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    return tmp_path / "fleet.toml"


def test_the_answer_has_the_fixed_keys(run: Run, tmp_path: Path):
    out, plot = tmp_path / "plan.csv", tmp_path / "plan.png"
    found = run(
        "fleet", EXAMPLE / "fleet.toml", "--objective", "carbon", "--json",
        "--out", out, "--plot", plot,
    ).json  # fmt: skip
    assert found["status"] == "optimal"
    assert found["value"] == pytest.approx(found["carbon_g"])
    assert found["gap"] == pytest.approx(1 - found["bound"] / found["value"], abs=1e-12)
    assert found["headroom"]["demand_scale"] > 1
    with out.open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == len(found["plan"])
    assert plot.read_bytes()[:4] == b"\x89PNG"
    north = [x for x in found["site_power"] if x["site"] == "north"]
    assert all(x["power_w"] <= x["budget_w"] == 4500 for x in north)


def test_the_plan_adds_up(run: Run):
    """Demand, GPUs, power and grams by arithmetic on the rows of the plan."""
    found = run("fleet", EXAMPLE / "fleet.toml", "--objective", "carbon", "--json").json
    with (EXAMPLE / "demand.csv").open() as lines:
        demand = list(csv.DictReader(lines))
    with (EXAMPLE / "points.csv").open() as lines:
        points = list(csv.DictReader(lines))
    for asked in demand:
        mine = [
            x for x in found["plan"]
            if (x["slot"], x["model"]) == (int(asked["slot"]), asked["model"])
        ]  # fmt: skip
        carried = sum(x["replicas"] * x["requests_per_s"] for x in mine)
        assert carried >= float(asked["requests_per_s"])
    for x in found["plan"]:
        assert float(points[x["row"]]["power_w"]) == x["power_w"]
        assert x["ttft_p95_s"] <= {"chat": 0.8, "code": 1.5}[x["model"]]
    counts = {"north-h100": 12, "south-h100": 8, "south-l40s": 12}
    parked = {"north-h100": 70, "south-h100": 70, "south-l40s": 30}
    grams = 0.0
    clean = [140, 95, 80, 120]
    for slot in range(4):
        drawn = {"north": 0.0, "south": 0.0}
        for pool, count in counts.items():
            mine = [x for x in found["plan"] if (x["slot"], x["pool"]) == (slot, pool)]
            used = sum(x["replicas"] * x["gpus_per_replica"] for x in mine)
            assert used <= count
            drawn[pool.split("-")[0]] += parked[pool] * (count - used) + sum(
                x["replicas"] * x["power_w"] for x in mine
            )
        told = {
            x["site"]: x["power_w"] for x in found["site_power"] if x["slot"] == slot
        }
        assert told["north"] == pytest.approx(1.2 * drawn["north"])
        assert told["south"] == pytest.approx(1.3 * drawn["south"])
        grams += (told["north"] * clean[slot] + told["south"] * 320) / 1000
    starts = 0.0
    for x in found["starts"]:
        joules = x["replicas"] * {"chat": 24e3, "code": 48e3}[x["model"]]
        pue, dirt = (1.2, clean[x["slot"]]) if "north" in x["pool"] else (1.3, 320)
        starts += pue * joules * dirt / 3.6e6
    assert found["carbon_g"] == pytest.approx(grams + starts)


def test_flags_replace_the_file(run: Run, tmp_path: Path):
    path = EXAMPLE / "fleet.toml"
    dear = run("fleet", path, "--objective", "cost", "--price", "100", "--json").json
    assert dear["cost"] == pytest.approx(dear["energy_j"] / 3.6e9 * 100)
    wide = run("fleet", path, "--power-budget", "50kW", "--json").json
    assert {x["budget_w"] for x in wide["site_power"]} == {50_000}
    series = tmp_path / "carbon.csv"
    series.write_text("slot,g\n" + "".join(f"{i},{100 + i}\n" for i in range(9)))
    run("fleet", path, "--carbon", series)  # longer than the demand: cut


def test_no_plan_says_why(run: Run):
    found = run("fleet", EXAMPLE / "fleet.toml", "--power-budget", "2000", "--json")
    assert found.code == 3
    told = json.loads(found.out)
    assert told["status"] == "infeasible"
    reason = told["reason"]
    assert (reason["limit"], reason["slot"], reason["budget_w"]) == ("power", 2, 2000)
    assert reason["remedy"] in found.err
    assert len(found.err.strip().splitlines()) == 1


WRONG: dict[str, tuple[str, str, str]] = {
    "no such pool site": ('site = "south"', 'site = "west"', "`site` is 'west'"),
    "name twice": ('name = "code"', 'name = "chat"', "`name` is 'chat' twice"),
    "no demand": ('demand = "demand.csv"', "", "`--demand` is missing"),
    "unknown GPU": ('gpu = "l40s"', 'gpu = "l41"', "is on `gpu` 'l41'"),
    "two starts": ("start_j = 24000", "start_j = 1\nstart_s = 1", "one of both"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_fleet_is_one_line(run: Run, fleet: Path, what: str):
    old, new, said = WRONG[what]
    text = fleet.read_text()
    assert old in text
    fleet.write_text(text.replace(old, new, 1))
    refuse(run, fleet, said)


WRONG_FILES: dict[str, tuple[str, str, str, str]] = {
    "negative": ("demand.csv", "0,chat,60", "0,chat,-1", "`requests_per_s` is '-1'"),
    "unknown model": ("demand.csv", "0,chat", "0,chatty", "`model` is 'chatty'"),
    "missing slot": ("demand.csv", "1,code,25\n", "", "`code` has no row in slot 1"),
    "twice": ("demand.csv", "1,code,25", "0,code,25", "`code` has 2 rows in slot 0"),
    "no word": ("demand.csv", "requests_per_s", "rps", "`requests_per_s` is missing"),
    "half a slot": ("demand.csv", "3,code", "2.5,code", "`slot` is '2.5'"),
    "short": ("carbon_north.csv", "3,120\n", "", "there are 3 slots"),
    "no number": ("carbon_north.csv", "3,120", "3,low", "is 'low'"),
    "three columns": ("carbon_north.csv", "g_per_kwh", "g,b", "row 0|two"),
    "zero rate": ("points.csv", "4.694", "0", "`requests_per_s` is '0'"),
    "units": ("points.csv", "power_w", "power_kw", "power_kw"),
    "two units": ("points.csv", "sm_clock_mhz", "power_kw", "power_kw"),
    "parts of GPUs": (
        "points.csv",
        "chat,l40s,1,",
        "chat,l40s,1.5,",
        "gpus_per_replica",
    ),
    "parked above": ("points.csv", "0.0213,262", "0.0213,20", "parked"),
    "empty cell": ("points.csv", "0.0213,262", "0.0213,", "`power_w` is empty"),
}


@pytest.mark.parametrize("what", WRONG_FILES)
def test_a_wrong_table_is_one_line(run: Run, fleet: Path, what: str):
    name, old, new, said = WRONG_FILES[what]
    path = fleet.parent / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    refuse(run, fleet, said)


def test_a_rate_in_another_unit_is_one_line(run: Run, fleet: Path):
    for name in ("points.csv", "demand.csv"):
        path = fleet.parent / name
        header, *rows = path.read_text().splitlines()
        wider = [f"{header},requests_per_min", *(f"{row},1" for row in rows)]
        old = path.read_text()
        path.write_text("\n".join(wider) + "\n")
        refuse(run, fleet, "there is a column `requests_per_min`")
        path.write_text(old)


def test_a_gpu_of_points_alone_needs_its_parked_watts(run: Run, fleet: Path):
    for path, new in ((fleet, '"tpu"'), (fleet.parent / "points.csv", ",tpu,")):
        text = path.read_text()
        path.write_text(text.replace(new.replace("tpu", "l40s"), new))
    fleet.write_text(fleet.read_text().replace("parked_w = 30\n", ""))
    refuse(run, fleet, "no `parked_w`")


HOURS = ("2024-05-12T09:00Z", "2024-05-12T10:00Z", "2024-05-12T11:00Z")


def timed(path: Path, times: tuple[str, ...]) -> None:
    lines = [f"{x},{model},{20 + 20 * i}" for i, x in enumerate(times)
             for model in ("chat", "code")]  # fmt: skip
    path.write_text("time,model,requests_per_s\n" + "\n".join(lines) + "\n")


def test_times_are_slots_in_order(run: Run, fleet: Path):
    """Whatever their order in the file, and however the same hour is written."""
    carbon = fleet.parent / "carbon_north.csv"
    carbon.write_text(
        "time,g_per_kwh\n2024-05-12 11:00,30\n2024-05-12 09:00,10\n"
        "2024-05-12 10:00,20\n2024-05-12 12:00,40\n"
    )
    timed(fleet.parent / "demand.csv", HOURS)
    found = run("fleet", fleet, "--objective", "carbon", "--json").json
    carried = [0.0, 0.0, 0.0]
    for x in found["plan"]:
        carried[x["slot"]] += x["replicas"] * x["requests_per_s"]
    assert all(x >= 2 * (20 + 20 * i) for i, x in enumerate(carried))
    assert carried[0] < 2 * 40


def test_missing_hours_are_one_line(run: Run, fleet: Path):
    demand = fleet.parent / "demand.csv"
    fleet.write_text(fleet.read_text().replace('"carbon_north.csv"', "100"))
    timed(demand, (HOURS[0], HOURS[2]))
    refuse(run, fleet, "after 2024-05-12T09:00:00Z comes 2024-05-12T11:00:00Z")
    timed(demand, ("nine", "ten"))
    refuse(run, fleet, "`time` is 'nine'")


def test_a_table_without_rows_is_one_line(run: Run, fleet: Path):
    path = fleet.parent / "points.csv"
    header = path.read_text().splitlines()[0]
    path.write_text(header + "\n")
    refuse(run, fleet, "no data row")
    path.write_text(header + "\nchat,tpu,1,1,1,1,1,1,1\n")
    refuse(run, fleet, "`chat` has no row on a GPU of the pools")


def test_an_objective_needs_its_series(run: Run, fleet: Path):
    text = fleet.read_text()
    fleet.write_text(text.replace("carbon = 320\n", ""))
    refuse(run, fleet, "not every site has a `carbon`", "--objective", "carbon")
    found = run("fleet", fleet, "--json").json
    assert found["carbon_g"] is None and found["cost"] is not None


@pytest.mark.parametrize(
    "flags, said",
    [
        (("--carbon", "-5"), "`--carbon` is -5"),
    ],
)
def test_wrong_flags_are_one_line(run: Run, flags: Any, said: str):
    refuse(run, EXAMPLE / "fleet.toml", said, *flags)


def refuse(run: Run, fleet: Path, said: str, *flags: str) -> None:
    found = run("fleet", fleet, *flags)
    assert (found.code, found.out) == (2, "")
    assert len(found.err.strip().splitlines()) == 1
    assert any(x in found.err for x in said.split("|")), found.err
