"""Check values A to E by hand arithmetic; the traps, each with what falls into it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from json_keys import check_part

import diffenergy as de
from diffenergy.fleet import NoPlan, _ask, _refusal

from .builders import one_pool, write_fleet

EXAMPLE = Path("docs/examples/fleet")
FULL, CAPPED = ("m", "x", 1, 10.0, 600.0), ("m", "x", 1, 6.0, 390.0)
TIGHT = (("m", "x", 1, 4.0, 200.0), ("m", "x", 1, 9.0, 380.0))


def planned(folder: Path, *arguments: Any, objective: Any = "energy", **more: Any):
    path = write_fleet(folder, *arguments, **more)
    return de.fleet.plan(path, objective=objective)


def replicas(result: Any) -> dict[tuple[int, int], int]:
    """By slot and row of the points."""
    return {(x["slot"], x["row"]): x["replicas"] for x in result.summary["plan"]}


# --- A and trap 6: whether capping or switching off wins turns on `parked_w`; trap
# 5: dear starts keep a second replica through a slot that one could carry, and rows of
# one (model, pool, n) share their replicas, so that a clock changes for nothing

DIP = [("m", "x", 1, 10.0, 400.0), ("m", "x", 1, 5.0, 250.0)]
CLOCKS = [("m", "x", 1, 10.0, 600.0), ("m", "x", 1, 5.0, 250.0)]
BACK = [{"slot": 2, "model": "m", "pool": "g", "replicas": 1}]


@pytest.mark.parametrize(
    "points, demand, pool, start, watts, starts",
    [
        ([FULL, CAPPED], [30.0], (5, 20), 0, 3 * 600 + 2 * 20, []),
        ([FULL, CAPPED], [30.0], (5, 120), 0, 5 * 390, []),
        (DIP, [20.0, 10.0, 20.0], (2, 50), 0, 800 + 450 + 800, BACK),
        (DIP, [20.0, 10.0, 20.0], (2, 50), 20, 800 + 450 + 800 + 20, BACK),
        (DIP, [20.0, 10.0, 20.0], (2, 50), {"start_s": 0.08}, 2050 + 0.08 * 250, BACK),
        # 2 x 250 instead of 400 + 50 and a start of 500
        (DIP, [20.0, 10.0, 20.0], (2, 50), 500, 800 + 500 + 800, []),
        (CLOCKS, [10.0, 5.0, 10.0], (1, 50), 1e6, 600 + 250 + 600, []),
        (CLOCKS, [0.0, 0.0], (1, 50), 0, 2 * 50, []),
    ],
)
def test_plans_by_hand(tmp_path: Path, points, demand, pool, start, watts, starts):
    result = planned(
        tmp_path, points, [{"m": x} for x in demand], one_pool(*pool),
        models={"m": start if isinstance(start, dict) else {"start_j": start}},
    )  # fmt: skip
    assert result.value == pytest.approx(watts)
    assert result.summary["starts"] == starts
    assert result.summary["status"] == "optimal"
    assert (result.summary["headroom"] is None) == (not any(demand))
    if points[1] is CAPPED:
        assert replicas(result) == ({(0, 0): 3} if pool[1] == 20 else {(0, 1): 5})


# --- B: what is told where nothing fits


def refused(folder: Path, *arguments: Any, **more: Any) -> dict[str, Any]:
    with pytest.raises(NoPlan) as refusal:
        planned(folder, *arguments, **more)
    reason = refusal.value.reason
    check_part("reason", reason)
    assert str(refusal.value) == reason["remedy"]
    return reason


def test_too_little_power_or_too_few_gpus(tmp_path: Path):
    site: dict[str, Any] = {"name": "main", "power_budget_w": 1800, "pue": 1.2345}
    question: tuple[Any, ...] = ([FULL, CAPPED], [{"m": 30.0}], one_pool(5, 20))
    reason = refused(tmp_path, *question, sites=[site])
    assert (reason["limit"], reason["slot"], reason["site"]) == ("power", 0, "main")
    assert reason["needed_w"] == pytest.approx(1840 * 1.2345)  # 2271.48
    assert reason["budget_w"] == 1800 and "to 2271.5," in reason["remedy"]
    site["power_budget_w"] = 2271.5
    value = planned(tmp_path, *question, sites=[site]).value
    assert value == pytest.approx(1840 * 1.2345)
    site["power_budget_w"] = 1000  # GPUs come before power
    demand = [{"m": 30.0}, {"m": 52.0}]
    reason = refused(tmp_path, question[0], demand, one_pool(5, 20), sites=[site])
    assert (reason["limit"], reason["slot"]) == ("gpus", 1)
    assert reason["add_gpus"] == {"g": 1}
    assert planned(tmp_path, question[0], demand, one_pool(6, 20)).value > 0


@pytest.mark.parametrize(("ttft", "tpot"), [(0.05, 0.02), (0.2, 0.005)])
def test_too_slow(tmp_path: Path, ttft: float, tpot: float):
    limits = {"m": {"slo_ttft_p95_s": ttft, "slo_tpot_p95_s": tpot}}
    reason = refused(tmp_path, [FULL], [{"m": 30.0}], one_pool(5, 20), models=limits)
    assert (reason["limit"], reason["model"]) == ("slo", "m")
    # with the other one held there is none
    assert reason["ttft_p95_s"] == (0.1 if ttft < 0.1 else None)
    assert reason["tpot_p95_s"] == (0.01 if tpot < 0.01 else None)
    least = "ttft_p95_s to 0.1" if ttft < 0.1 else "tpot_p95_s to 0.01"
    assert f"raise slo_{least}" in reason["remedy"]


def test_a_gpu_of_points_alone_has_no_parked_power(tmp_path: Path):
    (pool,) = one_pool(5, 20)
    del pool["parked_w"]
    with pytest.raises(ValueError, match="'x' is no GPU that is known; give parked_w"):
        planned(tmp_path, [FULL], [{"m": 30.0}], [pool])


def test_time_may_be_what_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where no limit is known to bind, a reason stands in the JSON, too."""
    monkeypatch.setattr(_ask, "short", lambda *_: None)
    reason = refused(tmp_path, TIGHT, [{"m": 18.001}], one_pool(2, 10))
    assert (reason["limit"], reason["slot"]) == ("time", 0)
    assert "raise `effort` or `time_limit`" in reason["remedy"]


# --- C and D: the bound and the prices of one model


@pytest.mark.parametrize(
    "wanted, watts, bound, gap",
    [(27.0, 1310.0, 1310.0, 0.0), (28.0, 1500.0, 200 + 28 * 370 / 9, 0.099)],
)
def test_the_linear_bound(
    tmp_path: Path, wanted: float, watts: float, bound: float, gap: float
):
    result = planned(tmp_path, TIGHT, [{"m": wanted}], one_pool(20, 10))
    assert result.value == pytest.approx(watts)
    assert result.summary["bound_by_prices"] == pytest.approx(bound)
    share = result.summary["bound_by_prices"] / result.value
    assert 1 - share == pytest.approx(gap, abs=1e-3)
    assert result.bound == pytest.approx(watts)  # the integer program proves the plan


def test_prices_of_one_model(tmp_path: Path):
    other = ("k", "x", 1, 1.0, 100.0)
    result = planned(tmp_path, (*TIGHT, other), [{"m": 24.0}], one_pool(3, 10))
    assert any("1 rows are of no model or no pool" in note for note in result.notes)
    prices = {x["kind"]: x for x in result.summary["shadow_prices"]}
    assert prices["gpu"]["value"] == pytest.approx(0)
    assert prices["gpu"]["net"] == pytest.approx(-10)  # it draws 10 W parked
    assert prices["request"]["value"] == pytest.approx(370 / 9)
    assert "watt" not in prices
    reason = refused(tmp_path, TIGHT, [{"m": 18.001}], one_pool(2, 10))
    assert reason["add_gpus"] == {"g": 1}


# --- E: two sites


def test_a_watt_at_the_clean_site(tmp_path: Path):
    sites: Any = [
        {"name": "clean", "carbon": 90, "price": 60},
        {"name": "dirty", "carbon": 380, "price": 60},
    ]
    pools = [
        {"name": name, "gpu": "x", "count": 10, "site": name, "parked_w": 0}
        for name in ("clean", "dirty")
    ]
    question = [("m", "x", 1, 10.0, 400.0)], [{"m": 60.0}], pools, sites

    def plan() -> dict[str, Any]:
        return planned(tmp_path, *question, objective="carbon", slot_s=3600).summary

    free = plan()
    assert {x["pool"] for x in free["plan"]} == {"clean"}
    assert free["value"] == pytest.approx(6 * 400 * 3600 * 90 / 3.6e6)
    sites[0]["power_budget_w"] = 1600.0
    limited = plan()
    counts = {x["pool"]: x["replicas"] for x in limited["plan"]}
    assert counts == {"clean": 4, "dirty": 2}
    watt = next(x for x in limited["shadow_prices"] if x["kind"] == "watt")
    assert watt["value"] == pytest.approx((380 - 90) / 3.6e6 * 3600)  # 0.29 g


# --- trap 1: one site and free starts: one plan; a budget without a price


def test_one_site_has_one_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    site = {"name": "main", "power_budget_w": 1840, "carbon": 200, "price": 50}
    question = [FULL, CAPPED], [{"m": 30.0}, {"m": 17.0}], one_pool(5, 20)
    result = {
        goal: planned(tmp_path, *question, sites=[site], objective=goal)
        for goal in ("energy", "cost", "carbon")
    }
    plans = [x.summary["plan"] for x in result.values()]
    assert plans[0] == plans[1] == plans[2]
    energy = result["energy"]
    prices = energy.summary["shadow_prices"]
    assert [x["value"] for x in prices if x["kind"] == "watt"] == [0, 0]
    assert any("same plan" in note for note in energy.notes)
    room = energy.summary["headroom"]
    assert room["slot"] == 0  # 1 W carries 10 / 580 requests/s more
    assert room["per_watt"]["main"] == pytest.approx(10 / 580 / 30)
    # the demand is 30 requests/s
    assert "one more W at main: 0.0172 req/s, one more GPU of" in "\n".join(
        map(str, energy.blocks())
    )
    monkeypatch.setattr(_refusal, "_ROWS", 0)  # too many: the busiest slot alone
    monkeypatch.setattr(_refusal, "_BUSIEST", 1)
    assert _refusal.headroom(energy.solved.problem) == room


# --- trap 3: a negative price burns nothing


def test_negative_prices_burn_nothing(tmp_path: Path):
    site = {"name": "main", "price": -100.0, "power_budget_w": 5000}
    question: tuple[Any, ...] = ([FULL, CAPPED], [{"m": 30.0}], one_pool(5, 20))
    result = planned(tmp_path, *question, sites=[site], objective="cost")
    assert replicas(result) == {(0, 0): 3}  # as little as under `energy`
    assert result.value == pytest.approx(-100 * 1840 / 3.6e9)
    assert 0 <= result.gap < 1e-9


@pytest.mark.parametrize("price", [0.0, -100.0])
def test_where_power_is_free_nothing_has_a_price(tmp_path: Path, price: float):
    site = {"name": "main", "price": price, "power_budget_w": 5000}
    question: tuple[Any, ...] = ([FULL, CAPPED], [{"m": 30.0}], one_pool(5, 20))
    result = planned(tmp_path, *question, sites=[site], objective="cost")
    prices = result.summary["shadow_prices"]
    assert {y for x in prices for y in (x["value"], x.get("net", 0.0))} == {0.0}
    assert result.summary["bound_by_prices"] == result.value
    assert result.summary["status"] == "optimal"


# --- trap 4: prices prove the bound


def test_told_prices_prove_the_bound(tmp_path: Path):
    """By arithmetic on the JSON alone, as the guide says."""
    result = de.fleet.plan("docs/examples/fleet/fleet.toml", objective="carbon")
    summary, problem = result.summary, result.solved.problem
    parked = dict(zip(problem.sites, problem.base, strict=True))
    total = 0.0
    for slot in range(4):
        prices = [x for x in summary["shadow_prices"] if x["slot"] == slot]
        for x in prices:
            if x["kind"] == "request":
                place = problem.models.index(x["model"])
                total += x["value"] * result.series.demand[slot, place]
            elif x["kind"] == "gpu":
                total -= x["value"] * problem.count[problem.pools.index(x["pool"])]
            else:
                budgets: Any = result.series.budget
                budget = budgets[slot, problem.sites.index(x["site"])]
                total -= x["value"] * (budget - parked[x["site"]])
        carbon: Any = result.series.carbon
        grams = carbon[slot] / 3.6e6
        total += 3600 * float(grams @ problem.base)
    assert total == pytest.approx(summary["bound_by_prices"], rel=1e-9)


# --- the example adds up, and times are slots


def test_the_plan_of_the_example_adds_up():
    """Demand, GPUs, power and grams by arithmetic on the rows of the plan."""
    result = de.fleet.plan(str(EXAMPLE / "fleet.toml"), objective="carbon")
    summary = result.summary
    assert summary["value"] == pytest.approx(summary["carbon_g"])
    assert summary["gap"] == pytest.approx(
        1 - summary["bound"] / summary["value"], abs=1e-12
    )
    plan, points = summary["plan"], pd.read_csv(EXAMPLE / "points.csv")
    for slot, model, rate in pd.read_csv(EXAMPLE / "demand.csv").itertuples(
        index=False
    ):
        rows = [x for x in plan if (x["slot"], x["model"]) == (slot, model)]
        assert sum(x["replicas"] * x["requests_per_s"] for x in rows) >= rate
    for x in plan:
        assert points.power_w[x["row"]] == x["power_w"]
        assert x["ttft_p95_s"] <= {"chat": 0.8, "code": 1.5}[x["model"]]
    counts = {"north-h100": 12, "south-h100": 8, "south-l40s": 12}
    parked = {"north-h100": 70, "south-h100": 70, "south-l40s": 30}
    grams, clean = 0.0, [140, 95, 80, 120]
    for slot in range(4):
        drawn = {"north": 0.0, "south": 0.0}
        for pool, count in counts.items():
            rows = [x for x in plan if (x["slot"], x["pool"]) == (slot, pool)]
            used = sum(x["replicas"] * x["gpus_per_replica"] for x in rows)
            assert used <= count
            drawn[pool.split("-")[0]] += parked[pool] * (count - used) + sum(
                x["replicas"] * x["power_w"] for x in rows
            )
        sites = [x for x in summary["site_power"] if x["slot"] == slot]
        watts = {x["site"]: x["power_w"] for x in sites}
        assert watts["north"] == pytest.approx(1.2 * drawn["north"])
        assert watts["north"] <= 4500
        assert watts["south"] == pytest.approx(1.3 * drawn["south"])
        grams += (watts["north"] * clean[slot] + watts["south"] * 320) / 1000
    for x in summary["starts"]:
        joules = x["replicas"] * {"chat": 24e3, "code": 48e3}[x["model"]]
        pue, dirt = (1.2, clean[x["slot"]]) if "north" in x["pool"] else (1.3, 320)
        grams += pue * joules * dirt / 3.6e6
    assert summary["carbon_g"] == pytest.approx(grams)


def test_times_are_slots_in_order(tmp_path: Path):
    """Whatever their order in the file, and however the same hour is written."""
    for path in EXAMPLE.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "carbon_north.csv").write_text(
        "time,g_per_kwh\n2024-05-12 11:00,30\n2024-05-12 09:00,10\n"
        "2024-05-12 10:00,20\n2024-05-12 12:00,40\n"
    )
    rows = [
        f"2024-05-12T{9 + slot:02}:00Z,{model},{20 + 20 * slot}"
        for slot in range(3)
        for model in ("chat", "code")
    ]
    lines = ["time,model,requests_per_s", *rows]
    (tmp_path / "demand.csv").write_text("\n".join(lines) + "\n")
    result = de.fleet.plan(str(tmp_path / "fleet.toml"), objective="carbon")
    carried = np.zeros(3)
    for x in result.summary["plan"]:
        carried[x["slot"]] += x["replicas"] * x["requests_per_s"]
    assert (carried >= 2 * (20 + 20 * np.arange(3))).all() and carried[0] < 2 * 40
