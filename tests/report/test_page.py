"""The page of an estimate: right numbers, everything behind them, nothing unescaped."""

import json
import re
from pathlib import Path

import pytest
from html_page import OURS, Page

from diffenergy.cli.app import parse_words
from diffenergy.cli.commands.report import command_line
from diffenergy.cli.commands.report_flags import Flags
from diffenergy.cli.flags import read_flags
from diffenergy.corrections import CONSTANTS
from diffenergy.estimator import estimate_details, prepare
from diffenergy.hardware import read_gpu
from diffenergy.report import Table, build_fragment, build_page, estimate_page
from diffenergy.report._format import digits, longest, si

from .pages import VERSUS, built, run

HOSTILE = "</script><b>&\"'"
LISTING = """\
{"name": "odd </title><i>&", "dispatch": "graph", "kernels": [
 {"op": "gemm", "m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "count": 2.5},
 {"op": "gemm", "m": 64, "n": 64, "k": 64, "dtype": "fp32", "count": 0},
 {"op": "elementwise", "fn": "FN", "elements": 1e8, "dtype": "bf16", "count": 1e9}]}
"""


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(built().html)


def test_it_loads_nothing(page):
    assert built().html.startswith("<!doctype html>")
    loaded = page.values("src") + page.values("href") + page.values("data")
    assert all(x == "data:," or x[1:] in page.ids for x in loaded)
    style = re.search(r"<style>(.*?)</style>", built().html, re.DOTALL)
    assert style and "@import" not in style[1] and "url(" not in style[1]
    scripts = re.findall(r"<script>(.*?)</script>", built().html, re.DOTALL)
    assert len(scripts) == 1
    for word in ("fetch(", "XMLHttpRequest", "import(", "eval(", "WebSocket"):
        assert word not in scripts[0]


def test_the_estimate_is_in_it(page):
    estimate = {k: v for k, v in built().estimate.items() if k != "kernels"}
    assert json.loads(page.text(OURS)) == estimate


def test_totals_stand_in_the_text_and_beside_the_second_gpu(page):
    """With the quotient of both."""
    units = {"energy_j": "J", "time_s": "s", "avg_power_w": "W", "ttft_s": "s",
             "tpot_s": "s", "energy_j_per_token": "J"}  # fmt: skip
    for key, unit in units.items():
        value = built().estimate[key]
        text = si(value, unit).replace(f" u{unit}", f" µ{unit}")
        assert text in page.text("answer")
        assert f'<data value="{value!r}">{text}</data>' in built().html
    text = page.text(f"against-{VERSUS}")
    for key in ("energy_j", "time_s"):
        a, b = built().estimate[key], built().versus[key]
        shown = (si(a, units[key]), si(b, units[key]), digits(b / a))
        assert all(x in text for x in shown)


def texts(page: Page, chart: str) -> list[str]:
    """What each point of a chart says."""
    data = json.loads(page.text(f"chart-{chart}-points"))
    which = data["which"] or range(len(data["texts"]))
    return [data["texts"][i] for i in which]


def test_every_kernel_and_launch_is_there(page):
    kernels = built().estimate["kernels"]
    live = [k for k in kernels if k["time_s"]]
    assert f"{len(live)} kernels" in page.text("kernels")
    assert len(texts(page, "roofline")) == len(live)
    for phase, passes, name in (("prefill", 1, ""), ("decode", 4, "-pass-3-of-4")):
        chart = texts(page, f"timeline-of-{phase}{name}")
        reported = [x for x in chart if not x.startswith("waiting")]
        launches = sum(k["count"] for k in kernels if k["phase"] == phase)
        assert passes * len(reported) == launches


def test_curves_pass_through_the_estimate(page):
    top = built().estimate
    text = f"{si(top['time_s'], 's')}, {si(top['energy_j'], 'J')}, "
    for chart, point in (("time-and-energy-over-sm-clocks", "1410 MHz"),
                         ("time-under-power-limits", "limit 400 W")):  # fmt: skip
        reported = [x for x in texts(page, chart) if "a100" in x]
        assert reported[-2].startswith(f"a100-sxm-80gb, {point}: {text}")


def test_energy_by_unit_is_that_of_both_estimates(page):
    reported = texts(page, "by-hardware-unit")
    for side in (built().estimate, built().versus):
        value, share = side["energy_j_by_unit"]["dram"], side["energy_j"]
        text = f"DRAM, {side['gpu']}: {si(value, 'J')}, {100 * value / share:.1f} %"
        assert text in reported


def test_every_number_and_constant_has_its_source(page):
    sources = page.text("sources")
    for gpu in ("a100-sxm-80gb", VERSUS):
        card = read_gpu(gpu)
        assert all(field in sources for field in card.values)
        named = {x["source"] for x in card.provenance.values() if x.get("source")}
        assert all(source in sources for source in named)
    assert all(name in sources for name in CONSTANTS) and "(fit)" in sources


def test_the_command_is_the_one_of_the_same_figures():
    words = ["a model", "--gpu", "l4", "--checkpointing", "--set", "tdp=70"]
    flags = read_flags(Flags, parse_words("report", words))
    text = "diffenergy estimate 'a model' --gpu l4 --checkpointing --set tdp=70 --json"
    assert command_line(flags) == text


# --- any page


def test_what_is_put_in_stands_for_itself():
    table = Table(((HOSTILE, HOSTILE),), [{HOSTILE: HOSTILE}], title=HOSTILE)
    result = Page(build_page(HOSTILE, [HOSTILE, table], {"a": HOSTILE}, HOSTILE))
    assert result.headings == [HOSTILE]
    assert json.loads(result.text(OURS))["a"] == HOSTILE


def test_long_tables_sort_and_say_their_order():
    rows = [("b", 2.0), ("a", None), *[("c", 1e-6)] * 5]
    columns = ("name", ("energy", 1, "J"))
    fragment = build_fragment([Table(columns, rows, sorted_by="energy")])
    assert fragment.count("<button") == 2
    assert 'aria-sort="none"' in fragment and 'aria-sort="descending"' in fragment
    assert 'data-value="2.0"' in fragment and "unavailable" in fragment
    assert "1.000 µJ" in fragment  # the number's column alone stands right
    assert fragment.count('class="num"') == 1 + len(rows)
    assert "<button" not in build_fragment([Table(columns, rows[:6])])


def test_a_page_shows_the_longest_kernels_and_counts_the_rest():
    kernels = [{"count": 2, "time_s": float(i) or None} for i in range(1004)]
    shown, rest = longest(kernels)
    assert [k["time_s"] for k in shown] == [float(i) for i in range(1003, 3, -1)]
    assert rest == " 3 shorter ones are not shown."
    assert longest(kernels[:5]) == (kernels[4:0:-1], "")


@pytest.mark.slow
def test_a_page_with_traps_is_still_a_page(tmp_path: Path):
    path = tmp_path / "odd.jsonl"
    text = LISTING.replace("\n", " ").replace("FN", HOSTILE.replace('"', '\\"'))
    path.write_text(text + "\n")
    task = prepare(str(path), "k40c", sm_clock=[745e6], corrections="none")
    text = estimate_page([estimate_details(task, task.run())], "")
    assert "</script><b>" not in text and "</title><i>" not in text
    assert text.count("<script") == text.count("</script>")
    reported = "".join(Page(text).words).lower()
    assert "nothing was fitted" in reported and "all launches of a kernel" in reported


# --- under load


@pytest.mark.slow
def test_a_served_model_has_a_section(tmp_path: Path):
    flags = ("qwen3-0.6b", "--input-len", "256", "--output-len", "64")
    served = ("--rate", "20", "--max-batch", "64", "--slo-tpot", "30ms")
    path = tmp_path / "page.html"
    run("report", *flags, *served, "--out", str(path))
    html = path.read_text(encoding="utf-8")
    page, result = Page(html), json.loads(run("serve", *flags, *served, "--json"))
    section = page.text("serving")
    for key in ("energy_j_per_output_token", "energy_j_per_request"):
        assert si(result[key], "J") in section
    for key in ("ttft_s", "tpot_s"):
        assert si(result[key]["mean"], "s").replace(" us", " µs") in section
    # both curves pass the answer: the nearest rate's mean is close to it
    scales = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    for key, chart in (("ttft_s", "to-first-token"), ("tpot_s", "per-output-token")):
        reported = texts(page, f"time-{chart}")
        means = [x for x in reported if x.startswith("mean: request rate ")]
        near = min(means, key=lambda x: abs(float(x.split()[3]) - 20))
        value, unit = near.split()[-2:]
        mean = result[key]["mean"]
        assert float(value) * scales[unit] == pytest.approx(mean, rel=0.02)
    # the estimate's command has no flag of the server
    assert "--rate" not in html[html.index("<pre") :]
