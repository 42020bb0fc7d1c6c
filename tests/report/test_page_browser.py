"""The report page in a headless browser: it renders, and works with the keyboard and at
phone width. Needs playwright (extra `test`) and a Chromium, such as Debian's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from .pages import built

pytestmark = pytest.mark.slow
_PHONE: Final = {"width": 390, "height": 844}
_DESK: Final = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(built().html, encoding="utf-8")
    return path


class Opened:
    """The page, and all that it complains of or asks for."""

    def __init__(self, browser: Any, file: Path, **options: Any):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.reported: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.reported.append(message.text))
        self.page.on("pageerror", lambda error: self.reported.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: Any) -> None:
        self.context.close()


@pytest.fixture(scope="module")
def desk(browser: Any, file: Path) -> Iterator[Opened]:
    with Opened(browser, file, viewport=_DESK) as opened:
        yield opened


@pytest.fixture(scope="module")
def phone(browser: Any, file: Path) -> Iterator[Opened]:
    options = {"viewport": _PHONE, "is_mobile": True, "has_touch": True}
    with Opened(browser, file, **options) as opened:
        yield opened


def test_it_renders_without_a_word_or_a_request(desk, file):
    assert desk.reported == []
    assert [url for url in desk.asked if not url.startswith("data:")] == [file.as_uri()]
    page = desk.page
    assert page.title() == "gpt2 on a100-sxm-80gb"
    assert page.locator("h1").count() == 1
    for chart in page.locator(".stage").all():
        drawn = chart.locator("svg:visible")
        assert drawn.count() == 1 and drawn.bounding_box()["height"] > 150
    figures = desk.page.locator("#answer dd.figure data:visible")
    values = [float(x.get_attribute("value")) for x in figures.all()]
    for key in ("energy_j", "time_s", "avg_power_w", "ttft_s"):
        assert built().estimate[key] in values


@pytest.mark.parametrize("width", [320, 390])
def test_nothing_scrolls_sideways_but_tables(phone, width: int):
    page = phone.page
    page.set_viewport_size({**_PHONE, "width": width})
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide == page.evaluate("window.innerWidth") == width
    inside = page.evaluate(
        """() => [...document.querySelectorAll('main *')].filter(x =>
        x.getBoundingClientRect().right > window.innerWidth + 1 &&
        !x.closest('.box') && !x.closest('.hidden') && !x.closest('svg') &&
        getComputedStyle(x).display !== 'none').map(x => x.outerHTML.slice(0, 80))"""
    )
    assert inside == []
    assert phone.reported == []
    for chart in page.locator(".stage svg:visible").all():
        assert "narrow" in chart.get_attribute("class")


def test_the_first_stop_of_the_keyboard_is_the_skip_link(browser, file):
    with Opened(browser, file, viewport=_DESK) as opened:
        page = opened.page
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        assert focused.inner_text() == "Skip to the result"
        assert focused.bounding_box()["y"] >= 0
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "answer"


def test_tables_sort_by_keyboard(desk):
    page, table = desk.page, desk.page.locator("#kernels table")
    head = table.locator("th", has_text="power")
    head.locator("button").focus()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    page.keyboard.press("Enter")
    assert page.evaluate(outline) != "none"
    column = table.locator("th").all_inner_texts()
    place = next(i for i, name in enumerate(column) if name.startswith("power"))

    def values() -> list[float]:
        result = table.locator(f"tbody td:nth-child({place + 1})").all()
        return [float(x.get_attribute("data-value")) for x in result]

    assert head.get_attribute("aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True)
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    assert table.locator('th[aria-sort="none"]').count() == len(column) - 1
    table.locator("th button").first.focus()
    page.keyboard.press(" ")
    names = table.locator("tbody td:first-child").all_inner_texts()
    assert names[0] < names[-1]


def test_charts_are_read_with_arrow_keys(desk):
    page, figure = desk.page, desk.page.locator("#time figure").first
    chart, readout = figure.locator(".stage"), figure.locator(".readout")
    chart.focus()
    page.keyboard.press("Home")
    first = readout.inner_text()
    assert "µs" in first and " W" in first
    assert chart.get_attribute("aria-valuetext") == first
    page.keyboard.press("ArrowRight")
    assert readout.inner_text() != first
    assert chart.get_attribute("aria-valuenow") == "2"
    page.keyboard.press("End")
    last = chart.get_attribute("aria-valuemax")
    assert chart.get_attribute("aria-valuenow") == last
    assert chart.locator(".cursor").count() == 1


def test_charts_are_read_with_the_pointer(desk):
    page, figure = desk.page, desk.page.locator("#clocks figure").first
    chart, readout = figure.locator(".stage"), figure.locator(".readout")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + box["height"] / 2)
    left = readout.inner_text()
    page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] / 2)
    right = readout.inner_text()
    assert left != right and "MHz" in left and "MHz" in right


def test_rows_of_sources_are_filtered(desk):
    page = desk.page
    details = page.locator("details", has_text="Numbers of a100")
    details.locator("summary").focus()
    page.keyboard.press("Enter")
    details.locator("input").fill("dram_bandwidth")
    rows = details.locator("tbody tr:visible")
    assert rows.count() == 1 and "B/s" in rows.inner_text()


def test_text_has_contrast_in_both_schemes(browser, file):
    for scheme in ("light", "dark"):
        with Opened(browser, file, viewport=_DESK, color_scheme=scheme) as opened:
            colours = opened.page.evaluate(
                """() => ['--ink', '--soft', '--accent', '--ground', '--card'].map(x =>
                getComputedStyle(document.documentElement).getPropertyValue(x))"""
            )
        *texts, ground, card = (luminance(x.strip()) for x in colours)
        for text in texts:
            for back in (ground, card):
                low, high = sorted((text, back))
                assert (high + 0.05) / (low + 0.05) >= 4.5, scheme


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
