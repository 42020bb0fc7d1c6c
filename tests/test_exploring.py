"""Sliders: what they show is the estimate, no move compiles, and moves are quick."""

import math
import re
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import diffenergy as de
from diffenergy.exploring import Numbers, Values, _widgets, picture
from diffenergy.hardware import read_gpu
from diffenergy.workload import load_model

MODEL, GPU = "gpt2", "a100-sxm-80gb"
CARD = read_gpu(GPU)
START = Values(
    1.41e9, 400.0, 8, 512, 128,
    *(CARD.values[x] for x in ("num_sms", "l2_capacity", "dram_bandwidth")),
)  # fmt: skip


@pytest.fixture(scope="module")
def numbers() -> Numbers:
    task = de.estimator.prepare(MODEL, GPU)
    return Numbers(load_model(MODEL), CARD, task.gpu)


def request(values: Values) -> dict[str, Any]:
    """The summary of the estimate at `values`."""
    changes = {
        name: getattr(values, name)
        for name in ("num_sms", "l2_capacity", "dram_bandwidth")
        if getattr(values, name) != CARD.values[name]
    }
    names = ("batch", "input_len", "output_len", "sm_clock", "power_limit")
    request = {name: getattr(values, name) for name in names}
    return de.estimate(MODEL, GPU, **request, changes=changes).summary


MOVED = START._replace(
    sm_clock=1.2e9, power_limit=150.0, batch=3, input_len=100, output_len=20,
    num_sms=80.0, l2_capacity=2e7, dram_bandwidth=3e12,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("values", [START, MOVED], ids=["start", "moved"])
def test_what_is_shown_is_the_estimate(numbers: Numbers, values: Values):
    shown, summary = numbers.at(values), request(values)
    figures = {
        "time": "time_s", "energy": "energy_j", "power": "avg_power_w",
        "energy_per_token": "energy_j_per_token", "ttft": "ttft_s", "tpot": "tpot_s",
    }  # fmt: skip
    for mine, theirs in figures.items():
        assert getattr(shown, mine) == pytest.approx(summary[theirs], rel=1e-9), mine
    assert shown.memory == summary["memory"]["total"]
    assert shown.energy_by_unit == pytest.approx(
        summary["energy_j_by_unit"], rel=1e-9, abs=1e-12
    )


@pytest.mark.slow
def test_the_curve_is_of_estimates_too(numbers: Numbers):
    shown = numbers.at(START)
    assert shown.clocks[-1] == CARD.values["sm_clock_max"]
    assert shown.times[-1] == pytest.approx(shown.time, rel=1e-12)
    clock = float(shown.clocks[3])
    summary = request(START._replace(sm_clock=clock))
    assert shown.times[3] == pytest.approx(summary["time_s"], rel=1e-9)
    assert shown.energies[3] == pytest.approx(summary["energy_j"], rel=1e-9)
    assert np.all(np.diff(shown.times) < 0)  # no limit binds


@pytest.mark.slow
def test_a_limit_that_cannot_be_kept_is_said(numbers: Numbers):
    shown = numbers.at(START._replace(power_limit=40.0))
    assert not shown.feasible and np.isnan(shown.times).all()
    assert "cannot be kept" in picture(shown, numbers.at(START))


@pytest.mark.slow
def test_no_move_compiles_and_each_takes_less_than_50_ms(numbers: Numbers):
    """Fifty moves over all sliders and to their ends, with their picture: CPU time,
    since others share the machine."""
    begin = numbers.at(START)
    compiled: list[str] = []

    def heard(event: str, duration_secs: float, **kwargs: str | int):
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(heard)
    stands = _widgets.positions(numbers, START)
    rng, values, seconds = np.random.default_rng(0), START, []
    for move in range(50):
        name = list(stands)[move % len(stands)]
        last = len(stands[name]) - 1
        place = [0, last, *rng.integers(last, size=5)][move // len(stands)]
        values = values._replace(**{name: stands[name][place]})
        values = values._replace(input_len=min(values.input_len or 0, 512))
        values = values._replace(output_len=min(values.output_len or 0, 512))
        began = time.process_time()
        picture(numbers.at(values), begin)
        seconds.append(time.process_time() - began)
    assert not compiled
    assert np.median(seconds) < 0.05


@pytest.mark.slow
def test_the_picture_is_whole_and_says_the_figures(numbers: Numbers):
    shown = numbers.at(MOVED)
    drawn = ElementTree.fromstring(picture(shown, numbers.at(START)))
    words = " ".join(drawn.itertext())
    assert f"{1e3 * shown.time:#.4g} ms" in words
    assert f"{1e3 * shown.energy_per_token:#.4g} mJ" in words
    assert "SM clock 1200 MHz" in words
    for unit, energy in shown.energy_by_unit.items():
        assert (unit.replace("_", " ") in words) == (energy > 5e-3 * shown.energy)
    for node in drawn.iter():
        for name in ("x", "y", "width", "height", "points", "cx", "cy"):
            for number in re.findall(r"[-\w.]+", node.get(name, "").replace("%", "")):
                assert math.isfinite(float(number))


def test_models_without_tokens_have_fewer_sliders():
    model = load_model("resnet-50")
    numbers = Numbers(model, CARD, CARD.spec)
    start = START._replace(input_len=None, output_len=None)
    stands = _widgets.positions(numbers, start)
    assert "batch" in stands and "input_len" not in stands
    assert all(values == sorted(set(values)) for values in stands.values())
    assert all(getattr(start, name) in values for name, values in stands.items())


# --- the widgets


@pytest.fixture
def explorer(numbers: Numbers) -> Iterator[Any]:
    pytest.importorskip("ipywidgets", reason="the extra `explore` is not installed")
    yield _widgets.Explorer(numbers, START)


def test_a_slider_moves_the_picture(explorer):
    before = explorer._picture.value
    assert before == explorer.picture()
    explorer.sliders["batch"].value = 32
    assert explorer.values == START._replace(batch=32)
    assert explorer.shown.tokens == 32 * 128
    assert explorer._picture.value == explorer.picture() != before
    limit = explorer.sliders["power_limit"]
    limit.value = limit.options[0][1]
    assert explorer.shown.sm_clock < 1.41e9
    assert explorer.values.batch == 32
    shown = explorer._repr_mimebundle_()  # of a notebook
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert "running kernel" in shown["text/plain"]
    assert shown["image/svg+xml"] == explorer.picture()  # for readers without one


def test_what_the_model_refuses_is_said(explorer):
    explorer.sliders["input_len"].value = 1024
    assert "1024 positions" in explorer._note.value
    assert explorer.values == START
    explorer.sliders["input_len"].value = 256
    assert explorer._note.value == "" and explorer.values.input_len == 256


def test_explore_begins_at_the_request():
    pytest.importorskip("ipywidgets", reason="the extra `explore` is not installed")
    result = de.explore("gpt2", "a10", batch=4, output_len=64, sm_clock=1.2e9)
    card = read_gpu("a10").values
    assert result.values == Values(
        1.2e9, card["tdp"], 4, 512, 64, card["num_sms"], card["l2_capacity"],
        card["dram_bandwidth"],
    )  # fmt: skip


def test_without_ipywidgets_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(ValueError, match=r"pip install diffenergy\[explore\]`\.$"):
        de.explore("gpt2")
