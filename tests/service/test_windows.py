"""Logs of a service as windows: every figure of a server that is known by hand."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from diffenergy.results import Infeasible
from diffenergy.service import Window, read, service_format
from diffenergy.service._loads import loads_of
from diffenergy.service._logs import read_logs
from diffenergy.service._windows import build_windows
from diffenergy.serving import (
    Load,
    ServerRequest,
    ServingResult,
    steady_state,
    steady_states,
)

from .builders import BUSY, END, T0, UP, bench, dcgm, genai, matrix, metrics, smi, times

Log = Callable[[str, str], str]
FIGURES = {
    "tokens": 441_600, "requests": 9600, "flow": 16.0, "input_len": 100.0,
    "output_len": 46.0, "ttft": 0.05, "tpot": 0.01, "power": 400.0,
}  # fmt: skip
"""Those of the 600 s that serve."""
WINDOW = Window("serving", 0.0, 60.0, 60.0, flow=16.0, input_len=100.0,
                output_len=46.0, running=8.0)  # fmt: skip


def windows(*paths: str, gpus: int = 1, **more: Any) -> list[Window]:
    length = more.pop("length", 600.0)
    return build_windows(read_logs(paths, **more), gpus, length)


def check(window: Window, **changes: Any):
    """The window that serves has the figures of the known server."""
    assert window.state == "serving"
    for name, value in (FIGURES | changes).items():
        figure = getattr(window, name)
        wanted = pytest.approx(value) if isinstance(value, float | int) else value
        assert figure == wanted, name


def states(result: list[Window]) -> list[tuple[str, float, float]]:
    return [(x.state, (x.start or 0) - T0, (x.end or 0) - T0) for x in result]


def test_power_and_tokens_are_joined(log: Log):
    result = windows(log("p.csv", smi()), log("m.json", matrix(metrics())))
    assert states(result) == [
        ("loading", 21.0, UP), ("idle", UP, BUSY), ("serving", BUSY, END),
    ]  # fmt: skip
    check(result[2], running=pytest.approx(8.0, rel=0.01))
    assert result[1].power == pytest.approx(100.0, rel=0.02) and not result[1].flow
    assert result[2].energy == pytest.approx(240_000)
    assert result[2].energy_per_token == pytest.approx(400 / 736)


@pytest.mark.parametrize("counter", [False, True])
def test_power_of_dcgm_in_the_same_export(log: Log, counter: bool):
    text = matrix([*metrics(), dcgm("0", counter)])
    check(windows(log("m.json", text))[-1], power=pytest.approx(400.0, rel=0.01))


def test_two_gpus_of_which_one_is_idle(log: Log):
    power, served = log("p.csv", smi(1, idle=1)), log("m.json", matrix(metrics()))
    check(windows(power, served)[-1])
    check(windows(power, served, gpus=2)[-1], power=450.0)


def test_two_replicas_add_up(log: Log):
    others = [{"instance": x, "model_name": "m"} for x in "ab"]
    text = matrix([y for x in others for y in metrics(share=0.5, labels=x)])
    check(windows(log("p.csv", smi(2)), log("m.json", text), gpus=2)[-1], power=800.0)


def test_a_counter_that_begins_anew_loses_nothing(log: Log):
    text = matrix(metrics(reset=490.0))
    check(windows(log("p.csv", smi()), log("m.json", text))[-1])


def test_a_restart_is_a_time_of_loading(log: Log):
    at = [x for x in times() if not 400 <= x < 600]
    result = windows(log("m.json", matrix([*metrics(at=at, reset=590.0), dcgm()])))
    assert [x.state for x in result[1:]] == ["idle", "serving", "unknown", "serving"]
    power = [dict(dcgm(), values=[[T0 + t, str(60 if 400 < t < 500 else 400)]
                                  for t in times(0.0)])]  # fmt: skip
    result = windows(log("m.json", matrix([*metrics(at=at, reset=590.0), *power])))
    assert ("loading", 500.0, 600.0) in states(result)


def test_a_gap_of_power_is_no_power(log: Log):
    lines = smi().splitlines(keepends=True)
    text = "".join(lines[:300] + lines[550:])
    result = windows(log("p.csv", text), log("m.json", matrix(metrics())), length=120.0)
    served = [x for x in result if x.state == "serving"]
    assert [x.power is None for x in served] == [True, True, True, False, False]
    assert "gaps" in served[0].why["power"]
    assert sum(x.tokens or 0 for x in served) == pytest.approx(441_600)


def test_short_pauses_belong_to_the_load(log: Log):
    rate = [0, 0, 0, 30, 0, 0, 30, 30, 30, *[0] * 12, 30]  # a reading every 10 s
    total = np.cumsum(rate)
    values = [[T0 + 10 * n, str(x)] for n, x in enumerate(total.tolist())]
    one = {"metric": {"__name__": "vllm:generation_tokens_total"}, "values": values}
    result = states(windows(log("m.json", matrix([one]))))
    assert result == [("idle", 0, 20), ("serving", 20, 80), ("idle", 80, 200),
                     ("serving", 200, 210)]  # fmt: skip


def test_clocks_of_a_zone(log: Log):
    power, served = log("p.csv", smi(ahead=7200)), log("m.json", matrix(metrics()))
    check(windows(power, served, zone="+02:00")[-1])
    with pytest.raises(ValueError, match=r"share no time; .*`time_zone` \+02:00 fits"):
        windows(power, served)


def test_windows_are_cut(log: Log):
    path = log("m.json", matrix(metrics()))
    assert len(windows(path, length=60.0)) == 1 + 10
    assert len(windows(path, length=None)) == 1 + 2  # of 300 s


def test_sglang_and_tables_of_grafana(log: Log):
    renamed = {"num_requests_running": "num_running_reqs",
               "request_success_total": "num_requests_total"}  # fmt: skip
    series = metrics("sglang:")
    columns = [
        f"sglang:{renamed.get(name := x['metric']['__name__'][7:], name)}"
        f'{{instance=""10.1.2.3:30000"", tp_rank=""{rank}""}}'
        for rank in (0, 1)
        for x in series
    ]
    rows = [",".join(f'"{x}"' for x in ["Time", *columns])]
    for n, (t, _) in enumerate(series[0]["values"]):
        cells = [x["values"][n][1] for x in series] * 2
        rows.append(",".join([f"{1e3 * t:.0f}", *cells]))
    check(
        windows(log("g.csv", "\n".join(rows) + "\n"))[-1], power=None, engine="sglang"
    )


def test_a_table_with_a_column_of_values(log: Log):
    rows = ["Time,__name__,instance,Value"]
    for x in metrics():
        for t, v in x["values"]:
            rows.append(f"{t},{x['metric']['__name__']},a,{v}")
    check(windows(log("g.csv", "\n".join(rows) + "\n"))[-1], power=None)


@pytest.mark.parametrize(
    ("tool", "value", "changes"),
    [
        ("vllm_bench", bench(), {}),
        ("sglang_bench",
         bench(backend="sglang", date=None, total_output_tokens_retokenized=1),
         {"power": None}),
        ("genai_perf", genai(), {"power": None}),
        ("genai_perf", genai(start_time="2026-01-01T00:04:00+00:00",
                             end_time="2026-01-01T00:14:00+00:00"), {}),
    ],
)  # fmt: skip
def test_benchmarks(log: Log, tool: str, value: dict[str, Any], changes: Any):
    path = log("b.json", json.dumps(value))
    assert service_format(path) == tool
    (result,) = windows(path, log("p.csv", smi()))
    check(result, **changes)
    assert result.clients == 8 and result.waves == 1200
    if changes:
        assert result.why["power"] == "the result has no time"


def test_several_runs_of_a_benchmark(log: Log):
    """All requests at once and an open loop; those with a time are in its order."""
    lines = [bench(max_concurrency=None), bench(max_concurrency=None, request_rate=2)]
    once, flow = windows(log("b.jsonl", "\n".join(map(json.dumps, lines))))
    assert (once.clients, once.waves, once.rate) == (9600, 1.0, None)
    assert (flow.clients, flow.waves, flow.rate) == (None, None, 2.0)
    lines = [bench(), bench(date="20260101-000400", mean_tpot_ms=20.0)]
    result = windows(log("b.jsonl", "\n".join(map(json.dumps, lines))))
    assert [x.tpot for x in result] == [0.02, 0.01]


def test_energy_of_zeus_and_codecarbon(log: Log):
    zeus = (
        "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n"
        f"{T0 + BUSY},serve,600.0,240000.0,60000.0\n{T0 + BUSY},step,10.0,4000.0,1.0\n"
    )
    served = log("m.json", matrix(metrics()))
    check(windows(log("z.csv", zeus), served)[-1])
    check(windows(log("z.csv", zeus), served, gpus=2)[-1], power=500.0)
    carbon = (
        "timestamp,project_name,run_id,duration,emissions,gpu_energy,gpu_count,"
        "gpu_model\n"
        f"2026-01-01T00:09:00,secret,r1,300,0.1,{120_000 / 3.6e6},1,NVIDIA H100 80GB\n"
        f"2026-01-01T00:14:00,secret,r1,600,0.1,{240_000 / 3.6e6},1,NVIDIA H100 80GB\n"
    )
    check(windows(log("c.csv", carbon), served)[-1])


def test_only_figures_names_of_gpus_and_times_leave_a_reader(log: Log):
    """Names of models, hosts and projects stay in the logs."""
    shown = repr(windows(log("m.json", matrix([*metrics(), dcgm()]))))
    shown += repr(windows(log("b.json", json.dumps(bench()))))
    for word in ("secret", "10.1.2.3", "h7", "GPU-0"):
        assert word not in shown


@pytest.mark.slow
def test_many_loads_are_those_of_each():
    loads = [
        Load(concurrency=8, input_len=500, output_len=100),
        Load(concurrency=20, input_len=600, output_len=120),
        Load(rate=3, input_len=600, output_len=120),
        Load(rate=1e4, input_len=600, output_len=120),
    ]
    server = ServerRequest(tp=1)
    *each, none = steady_states(loads, server, model="qwen3-8b", gpu="h100-sxm")
    assert isinstance(none, Infeasible)
    for load, result in zip(loads, each, strict=False):
        assert isinstance(result, ServingResult)
        alone = steady_state("qwen3-8b", "h100-sxm", load)
        for name in ("energy", "tpot", "ttft"):
            figure = getattr(alone, name)
            assert getattr(result, name) == pytest.approx(figure, rel=0.015)


@pytest.mark.parametrize(
    ("changes", "arrivals", "modes"),
    [
        ({}, "auto", ["closed", "open"]), ({}, "open", ["open", "closed"]),
        ({"running": 0.5}, "closed", ["open"]), ({"running": None}, "auto", ["open"]),
        ({"input_len": None}, "auto", []), ({"state": "idle"}, "auto", []),
        ({"running": None, "rate": 2.0}, "auto", ["open"]),
    ],
)  # fmt: skip
def test_the_load_of_a_window(changes: Any, arrivals: Any, modes: list[str]):
    loads = loads_of(dataclasses.replace(WINDOW, **changes), arrivals)
    assert [x.mode for x in loads] == modes


def test_a_queue_and_a_prefix_cache_are_part_of_the_load():
    (load, _) = loads_of(dataclasses.replace(WINDOW, waiting=4.0, hits=0.25))
    assert (load.concurrency, load.max_batch, load.prefix_hit) == (12, 8, 0.25)
    assert load.input.mean == 75


def test_another_gpu_of_the_host_does_not_count(log: Log):
    """It draws more, but is none of the service's kind."""
    other = dcgm("1", name="NVIDIA A10")
    other["values"] = [[t, "900"] for t, _ in other["values"]]
    path = log("m.json", matrix([*metrics(), dcgm(), other]))
    table = read(path, model="gpt2", gpu="h100-sxm", every=600.0).table
    assert table["avg_power_w"].tolist() == [pytest.approx(400, rel=0.01)]
