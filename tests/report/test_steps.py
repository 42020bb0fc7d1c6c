"""A training step on many GPUs as tables, trace and picture, of one answer."""

import functools
import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from chart_checks import check, drawn, only

from diffenergy.charts import Boxes, Rule, to_figure
from diffenergy.estimator import (
    STILL,
    EstimateResult,
    mean_gpu_kernels,
    prepare,
    totals_by_class,
)
from diffenergy.plans import Timeline
from diffenergy.report import require_timeline, step_trace_text
from diffenergy.report._charts.steps import step_chart, step_charts
from diffenergy.report._tables.steps import merge_equal_stages, plan_text
from diffenergy.workload import listing_lines, read_listings

GPUS = 8
GRID = 2e-6
"""us; times are rounded to picoseconds."""


@functools.cache
def answer() -> EstimateResult:
    """GPT-2 on 2 x 2 x 2 GPUs, 4 micro-batches of a replica."""
    request = {"phase": "train", "input_len": 64, "global_batch": 8}
    return prepare("gpt2", "h100-sxm", plan="tp=2,pp=2,dp=2", **request).run()


@functools.cache
def line() -> Timeline:
    step = answer().step
    assert step is not None
    return require_timeline(step.timeline)


@pytest.mark.slow
def test_the_last_slice_ends_with_the_step():
    summary, end = answer().summary, line().end
    assert end.max() == pytest.approx(summary["step_time_s"], rel=1e-9)
    assert line().energy == pytest.approx(summary["energy_j"], rel=1e-9)
    for stage, reported in enumerate(summary["stages"]):
        rows = (line().stage == stage) & (line().batch >= 0)
        busy = (end[rows] - line().start[rows]).sum()
        sent = summary["communication"]["pp"]["exposed_s"]
        wanted = 4 * (reported["forward_s"] + reported["backward_s"]) + sent
        assert busy == pytest.approx(line().slower * wanted, rel=1e-9)
        edges, watts = line().curve(stage)
        mean = np.diff(edges) @ watts[:-1] / summary["time_s"]
        assert mean == pytest.approx(reported["power_w"], rel=1e-6)
    mean = line().exposed.sum(axis=0) / 2
    for axis, seconds in zip(("tp", "pp", "dp", "ep", "cp"), mean, strict=True):
        exposed = summary["communication"][axis]["exposed_s"]
        wanted = line().slower * exposed
        assert seconds == pytest.approx(wanted, rel=1e-6, abs=1e-12)


@pytest.mark.slow
def test_kernels_add_up_to_the_joules():
    """Beyond idle and leakage power, over all GPUs that launch them."""
    result = answer()
    summary, kernels = result.summary, result.kernels or []
    units = summary["energy_j_by_unit"]
    dynamic = sum(x["count"] * x["gpus"] * x["dynamic_j"] for x in kernels)
    wanted = summary["energy_j"] - units["idle"] - units["leakage"]
    assert dynamic == pytest.approx(wanted, rel=1e-9)
    for rows in (kernels, mean_gpu_kernels(kernels, summary)):
        classes = totals_by_class(rows, summary)
        times, joules = zip(*classes.values(), strict=True)
        assert sum(joules) == pytest.approx(summary["energy_j"], rel=1e-9)
        assert sum(times) == pytest.approx(summary["time_s"], rel=1e-9)
        still = units["idle"] + units["leakage"]
        assert classes[STILL][1] == pytest.approx(still, rel=1e-9)
    passes = sum(x["energy_j"] for x in summary["phases"].values())
    assert passes == pytest.approx(summary["energy_j"], rel=1e-9)


@pytest.mark.slow
def test_the_mean_gpu_launches_what_all_do():
    result = answer()
    kernels = result.kernels or []
    mean = mean_gpu_kernels(kernels, result.summary)
    for part in ("forward", "backward", "forward tp", "optimizer"):
        one = sum(x["count"] * x["time_s"] for x in mean if x["phase"] == part)
        every = sum(
            x["count"] * x["gpus"] * x["time_s"]
            for x in kernels
            if x["phase"].startswith(part.replace(" ", "_") + "@")
        )
        assert one == pytest.approx(every / GPUS, rel=1e-9)
        assert one > 0


def test_equal_stages_are_one_line():
    """Of 0, 1, 1, 1, 0 layers three lines, whose memory reaches from least to most."""
    stages = [
        {
            "layers": layers, "forward_s": 1.0, "backward_s": 2.0, "busy": 0.9,
            "power_w": 500.0, "sm_clock_mhz": 1500.0, "memory_bytes": bytes_,
        }
        for layers, bytes_ in ((0, 9.0), (1, 5.0), (1, 4.0), (1, 3.0), (0, 2.0))
    ]  # fmt: skip
    result = merge_equal_stages(stages)
    assert [x["name"] for x in result] == ["0", "1 to 3", "4"]
    assert (result[1]["memory_bytes"], result[1]["most_bytes"]) == (3.0, 5.0)


def test_plans_and_listings_are_read_back(tmp_path: Any):
    """Every part of every kind of virtual stages is a workload of its own."""
    plan = answer().summary["plan"]
    assert plan_text(plan) == "tp=2,pp=2,dp=2"
    other = plan | {"etp": 1, "schedule": "gpipe"}
    assert plan_text(other) == "tp=2,pp=2,dp=2,etp=1,schedule=gpipe"
    path = tmp_path / "step.jsonl"
    path.write_text(listing_lines(answer().listings))
    names = [x.name for x in read_listings(str(path))]
    assert len(set(names)) == len(names)
    assert {"gpt2/forward@0", "gpt2/backward_tp@1", "gpt2/reduce@0"} <= set(names)


@functools.cache
def trace() -> dict[str, Any]:
    return json.loads(step_trace_text(answer().summary, line()))


def test_every_stage_has_two_tracks_without_overlap():
    names = [x for x in trace()["traceEvents"] if x["name"] == "thread_name"]
    tracks = {(x["pid"], x["tid"]): x["args"]["name"] for x in names}
    assert tracks == {
        (stage, tid): word
        for stage in (1, 2)
        for tid, word in ((1, "compute"), (2, "communication"))
    }
    slices = defaultdict(list)
    for event in trace()["traceEvents"]:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append(event)
    assert slices.keys() == tracks.keys()
    for events in slices.values():
        events.sort(key=lambda x: x["ts"])
        for before, after in zip(events, events[1:], strict=False):
            assert before["ts"] + before["dur"] <= after["ts"] + GRID


def test_the_trace_tells_hidden_from_exposed():
    """Seconds by axis, of the mean of two stages, are those of the answer, slowed by
    what no part explains; computation, bubbles and what is exposed fill the step."""
    summary, slower = answer().summary, line().slower
    spent: dict[str, float] = defaultdict(float)
    kinds: dict[str, float] = defaultdict(float)
    for event in trace()["traceEvents"]:
        if event["ph"] == "X" and event["tid"] == 2:
            spent[event["name"]] += event["args"]["seconds"] / 2
        elif event["ph"] == "X":
            kinds[event["cat"]] += event["dur"] * 1e-6
    for axis in ("tp", "pp", "dp"):
        reported = summary["communication"][axis]
        exposed = slower * reported["exposed_s"]
        assert spent[f"{axis} exposed"] == pytest.approx(exposed, rel=1e-6)
        hidden = slower * reported["total_s"] - exposed
        assert spent[f"{axis} hidden"] == pytest.approx(hidden, rel=1e-6)
    shown = sum(kinds.values()) + 2 * sum(spent[x] for x in spent if "exp" in x)
    assert shown == pytest.approx(2 * summary["time_s"], rel=1e-6)
    assert kinds["bubble"] > 0


def test_the_charts_have_stages_and_power():
    result = answer()
    actual = result.charts()
    check(actual)
    stages, whole, one = actual["step"].panels
    slices = [x for x in stages.marks if isinstance(x, Boxes) and x.edged]
    assert sum(len(x.left) for x in slices) == len(line().stage)
    assert stages.y.names == ["stage 0", "stage 1"]
    (power,) = (mark for mark in whole.marks if isinstance(mark, Boxes))
    long = np.array(power.right) - np.array(power.left)
    mean = long @ np.array(power.high) / power.right[-1]
    assert mean == pytest.approx(result.summary["power_total_w"], rel=1e-6)
    (limit,) = (mark for mark in one.marks if isinstance(mark, Rule))
    assert limit.at == result.summary["power_limit_w"]


def test_wide_pipelines_are_drawn_whole():
    """24 stages of 64 micro-batches in 3 virtual stages: every slice and no text cut
    off."""
    stages, batches, virtual = 24, 64, 3
    size = stages * batches * virtual
    stage, batch, chunk = (x.ravel() for x in np.indices((stages, batches, virtual)))
    start = (stage + virtual * batch + chunk).astype(float)
    wide = Timeline(
        stage=stage, kind=np.zeros(size, int), chunk=chunk, batch=batch, start=start,
        end=start + 1, work=np.ones(size), exposed=np.zeros((size, 5)),
        hidden=np.zeros((size, 5)), power=np.full(size, 600.0),
        waiting=np.full(stages, 100.0), abreast=8, pipeline=215.0, time=220.0,
        slower=1.0,
    )  # fmt: skip
    chart = step_chart(answer().summary, wide)
    drawn(to_figure(chart))
    forward = only(chart.panels[0], "forward")
    assert isinstance(forward, Boxes) and len(forward.left) == size
    edges, watts = wide.curve(0)
    assert edges == pytest.approx([0.0, 192.0, 220.0])
    assert watts[:2] == pytest.approx([600.0, 100.0])
    assert wide.curve()[1].max() == pytest.approx(8 * 24 * 600.0)
    few = step_charts(answer().summary, wide, most=size - 1)["stages"]
    assert not few.panels and "more than" in few.caption
    with pytest.raises(ValueError, match="global_batch"):
        require_timeline(None)
