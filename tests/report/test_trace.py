"""Traces that Perfetto opens: what is written, parsed back."""

import json
from collections import defaultdict
from typing import Any

import pytest

from .pages import FLAGS, run

CASES = {
    "generate": FLAGS,
    "train": ("gpt2", "--gpu", "a100-sxm-80gb", "--input-len", "64", "--batch", "2",
              "--phase", "train", "--accumulation", "2"),
}  # fmt: skip
GRID = 2e-6
"""us; times are rounded to picoseconds."""


@pytest.fixture(scope="module", params=CASES)
def traced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what `--json --detail` prints, the trace)."""
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    command = ("estimate", *CASES[request.param], "--json", "--detail")
    result = json.loads(run(*command, "--trace", str(path)))
    return result, json.loads(path.read_text())


def slices(trace: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Complete events of every track, in the order of their start, long ones first."""
    tracks = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
    for events in tracks.values():
        events.sort(key=lambda x: (x["ts"], -x["dur"]))
    return dict(tracks)


def kernel_slices(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [x for x in slices(trace)[1, 1] if x["cat"] not in ("phase", "pass")]


def test_slices_nest_and_never_cross(traced):
    _, trace = traced
    for events in slices(trace).values():
        open_until: list[float] = []
        for event in events:
            start, end = event["ts"], event["ts"] + event["dur"]
            assert start >= 0 and event["dur"] >= 0
            while open_until and open_until[-1] <= start + GRID:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + GRID
            open_until.append(end)


def test_durations_and_gaps_add_up_to_the_time(traced):
    result, trace = traced
    events = [x for x in slices(trace)[1, 1] if x["cat"] == "phase"]
    assert [x["name"] for x in events] == list(result["phases"])
    times = [phase["time_s"] for phase in result["phases"].values()]
    assert [x["dur"] * 1e-6 for x in events] == pytest.approx(times, rel=1e-9)
    kernels = sum(x["dur"] for x in kernel_slices(trace)) * 1e-6
    busy = sum(phase["gpu_time_s"] for phase in result["phases"].values())
    assert kernels == pytest.approx(busy, rel=1e-6)
    last = max(x["ts"] + x["dur"] for x in kernel_slices(trace))
    first = events[0]["ts"]
    assert (last - first) * 1e-6 == pytest.approx(result["time_s"], rel=1e-9)


def test_every_launch_is_a_slice(traced):
    result, trace = traced
    assert trace["otherData"]["launches_not_shown_one_by_one"] == 0
    launches = sum(kernel["count"] for kernel in result["kernels"])
    assert len(kernel_slices(trace)) == launches


def test_the_host_launches_before_the_kernel_starts(traced):
    result, trace = traced
    hosts = slices(trace).get((2, 1), [])
    needed = sum(phase["host_time_s"] for phase in result["phases"].values())
    assert sum(x["dur"] for x in hosts) * 1e-6 == pytest.approx(needed, rel=1e-6)
    eager = [name for name, x in result["phases"].items() if x["host_time_s"] > 0]
    spans = {x["name"]: x for x in slices(trace)[1, 1] if x["cat"] == "phase"}
    kernels = [
        x
        for x in kernel_slices(trace)
        if any(
            spans[name]["ts"] - GRID <= x["ts"] < spans[name]["ts"] + spans[name]["dur"]
            for name in eager
        )
    ]
    for host, kernel in zip(hosts, kernels, strict=True):
        assert host["name"] == f"launch {kernel['name']}"
        assert host["ts"] + host["dur"] <= kernel["ts"] + GRID


def test_counters_integrate_to_the_energy_and_the_traffic(traced):
    result, trace = traced
    end = max(x["ts"] + x["dur"] for x in slices(trace)[1, 1])
    counters = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            (value,) = event["args"].values()
            counters[event["name"]].append((event["ts"], value))
    assert set(counters) == {"power (W)", "SM clock (MHz)", "DRAM bandwidth (GB/s)"}

    def integral(name: str) -> float:
        times = [ts for ts, _ in counters[name]] + [end]
        assert times == sorted(times)
        pairs = zip(times, times[1:], counters[name], strict=False)
        return sum((b - a) * 1e-6 * value for a, b, (_, value) in pairs)

    assert integral("power (W)") == pytest.approx(result["energy_j"], rel=1e-4)
    clock = integral("SM clock (MHz)") / result["time_s"]
    assert clock == pytest.approx(result["sm_clock_mhz"], rel=1e-4)
    moved = sum(
        k["count"] * k["time_s"] * k["utilization"]["dram"] for k in result["kernels"]
    )
    assert integral("DRAM bandwidth (GB/s)") == pytest.approx(moved * 2039.0, rel=0.01)
