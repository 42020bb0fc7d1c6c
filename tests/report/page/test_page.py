"""The report page as text: complete in itself, right numbers, nothing unescaped."""

import html
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from diffenergy.corrections import CONSTANTS
from diffenergy.hardware import read_gpu
from diffenergy.report._format import digits, si

from .pages import VERSUS, made

VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """Elements of a page: their attributes, and the text of those with an id."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.stack: list[tuple[str, str | None]] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.ids: dict[str, list[str]] = {}
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        identity = dict(attrs).get("id")
        if identity is not None:
            assert identity not in self.ids, f"id {identity} twice"
            self.ids[identity] = []
        if tag not in VOID:
            self.stack.append((tag, identity))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.stack[-1][0] == tag, (tag, self.stack[-3:])
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        for _, identity in self.stack:
            if identity is not None:
                self.ids[identity].append(data)
        if self.stack and self.stack[-1][0] not in ("script", "style"):
            self.words.append(data)

    def text(self, identity: str) -> str:
        return "".join(self.ids[identity])


@pytest.fixture(scope="module")
def page() -> Page:
    found = Page(made().html)
    assert not found.stack  # every element is closed
    return found


def test_it_loads_nothing(page):
    assert made().html.startswith("<!doctype html>")
    for tag, name, value in page.attributes:
        if name in ("src", "href", "srcset", "action", "data", "poster"):
            assert value == "data:," or (value or "").startswith("#"), (
                tag,
                name,
                value,
            )
    style = re.search(r"<style>(.*?)</style>", made().html, re.DOTALL)
    assert style and "@import" not in style[1] and "url(" not in style[1]
    scripts = re.findall(r"<script>(.*?)</script>", made().html, re.DOTALL)
    assert len(scripts) == 1
    for word in ("fetch(", "XMLHttpRequest", "import(", "eval(", "WebSocket"):
        assert word not in scripts[0]


def test_links_lead_somewhere(page):
    targets = [v for _, name, v in page.attributes if name == "href" and v != "data:,"]
    assert targets and all(target[1:] in page.ids for target in targets)
    refer = ("aria-labelledby", "data-points")
    named = [v for _, name, v in page.attributes if name in refer]
    assert named and all(name in page.ids for name in named)


def test_the_estimate_is_in_it(page):
    estimate = {k: v for k, v in made().estimate.items() if k != "kernels"}
    assert json.loads(page.text("estimate")) == estimate


TOTALS = (
    ("energy_j", "J"), ("time_s", "s"), ("avg_power_w", "W"), ("ttft_s", "s"),
    ("tpot_s", "s"), ("energy_j_per_token", "J"),
)  # fmt: skip


@pytest.mark.parametrize(("key", "unit"), TOTALS)
def test_totals_stand_in_the_text(page, key: str, unit: str):
    value = made().estimate[key]
    text = si(value, unit).replace(f" u{unit}", f" µ{unit}")
    assert len(re.sub(r"\D", "", text.split()[0])) >= 3
    assert text in page.text("answer")
    assert f'<data value="{value!r}">{text}</data>' in made().html


def test_intervals_grade_and_tokens_stand_in_the_text(page):
    estimate, answer = made().estimate, page.text("answer")
    for key, unit in (("time_s_p5_p95", "s"), ("energy_j_p5_p95", "J")):
        low, high = (si(x, unit) for x in estimate[key])
        assert f"{low} to {high}" in answer
    assert answer.count("5 to 95 %") == 3  # of the power too
    time, power = (estimate["grades"][x] for x in ("time", "power"))
    both = time if time == power else f"time {time}, power {power}"
    assert f"Grade: {both}." in answer
    assert digits(estimate["tokens_per_s"]) in answer


def cells(page: Page, text: str) -> dict[str, list[float]]:
    """Exact values by the first cell, or heading, of each row."""
    found = {}
    for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL):
        name = re.search(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
        values = [float(x) for x in re.findall(r'<data value="([^"]+)"', row)]
        if name and values:
            found[html.unescape(re.sub("<.*?>", "", name[1]))] = values
    return found


def section(identity: str, tag: str = "figure") -> str:
    pattern = rf'<{tag}[^>]*\bid="{identity}"[^>]*>.*?</{tag}>'
    found = re.search(pattern, made().html, re.DOTALL)
    assert found, identity
    return found[0]


def test_energy_by_unit_is_that_of_both_estimates(page):
    texts = points(page, "chart-energy-by-unit")["texts"]
    for side in (made().estimate, made().versus):
        value, unit = side["energy_j_by_unit"]["dram"], f"DRAM, {side['gpu']}: "
        share = 100 * value / side["energy_j"]
        assert f"{unit}{si(value, 'J')}, {share:.1f} %" in texts


def points(page: Page, identity: str) -> dict[str, Any]:
    return json.loads(page.text(f"{identity}-points"))


def test_every_kernel_is_on_the_roofline(page):
    live = [k for k in made().estimate["kernels"] if k["time_s"]]
    assert len(points(page, "chart-roofline")["texts"]) == len(live)
    rows = re.findall("<tr>", section("kernel-table", "table"))
    assert len(rows) == len(live) + 1


@pytest.mark.parametrize(("phase", "passes"), [("prefill", 1), ("decode", 4)])
def test_every_launch_is_on_the_timeline(page, phase: str, passes: int):
    kernels = [k for k in made().estimate["kernels"] if k["phase"] == phase]
    data = points(page, f"chart-timeline-{phase}")
    texts = [data["texts"][i] for i in data["which"]]
    launches = sum(not text.startswith("waiting") for text in texts)
    assert passes * launches == sum(k["count"] for k in kernels)


def test_curves_pass_through_the_estimate(page):
    top = made().estimate
    text = f"{si(top['time_s'], 's')}, {si(top['energy_j'], 'J')}, "
    clocks = [x for x in points(page, "chart-clocks")["texts"] if "a100" in x]
    assert clocks[-2].startswith(f"a100-sxm-80gb, 1410 MHz: {text}")
    assert clocks[-1].startswith(f"a100-sxm-80gb, the estimate, 1410 MHz: {text}")
    limits = [x for x in points(page, "chart-time-by-limit")["texts"] if "a100" in x]
    assert limits[-2].startswith(f"a100-sxm-80gb, limit 400 W: {text}")


def test_the_second_gpu_is_compared(page):
    found = cells(page, section("comparison", "table"))
    for name, key in (("energy", "energy_j"), ("time", "time_s")):
        a, b = made().estimate[key], made().versus[key]
        assert found[name] == [a, b, b / a]
    assert f"Against {VERSUS}" in "".join(page.words)


def test_every_coefficient_has_its_source(page):
    for number, gpu in enumerate(("a100-sxm-80gb", VERSUS)):
        numbers = page.text(f"numbers-{number}")
        card = read_gpu(gpu)
        assert all(field in numbers for field in card.values)
        sources = {x["source"] for x in card.provenance.values() if x.get("source")}
        assert all(source in numbers for source in sources)
        constants = page.text(f"constants-{number}")
        assert all(name in constants for name in CONSTANTS)
        assert "global" in constants and "(fit)" in constants


def test_what_the_page_was_made_of_is_said(page):
    assert made().printed.startswith("wrote ")
    said = "".join(page.words)
    flags = "gpt2 --gpu a100-sxm-80gb --batch 2 --input-len 64 --output-len 5"
    assert f"diffenergy estimate {flags} --json" in said
    assert "no host, no cooling" in said and "Assumed: phase generate" in said
