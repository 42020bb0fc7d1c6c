"""The page of `diffenergy web` in a headless browser: forms, pins, address, cancel and
keyboard. Needs playwright (extra `test`) and a Chromium, such as Debian's."""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from .conftest import Server
from .test_service import ASKED, EXAMPLES

pytestmark = pytest.mark.slow
_DESK: Final = {"width": 1440, "height": 900}
_PHONE: Final = {"width": 390, "height": 844}
_LONGEST: Final = 110_000
"""ms for an answer that compiles."""
_ANSWER: Final = "#now:not(.stale) :is(.line, table)"
"""The answer to what was asked last."""


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport=_DESK)
    opened = context.new_page()
    opened.messages = []
    opened.on("pageerror", lambda error: opened.messages.append(str(error)))
    opened.on("console", lambda message: opened.messages.append(message.text))
    yield opened
    assert opened.messages == []
    context.close()


def open_page(page: Any, server: Server, command: str, **fields: Any):
    page.goto(f"{server.url}/{command}?{urlencode(fields)}")


def answered(page: Any):
    page.wait_for_selector(_ANSWER, timeout=_LONGEST)


def fill(page: Any, server: Server, command: str):
    """Opens the form of a command, fills it and asks."""
    page.goto(f"{server.url}/{command}")
    for name, value in ASKED[command][0].items():
        if name == "posted":
            files = [
                {"name": x, "mimeType": "text/plain", "buffer": text.encode()}
                for x, text in value.items()
            ]
            page.locator("#posted").set_input_files(files)
            continue
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        field = page.locator(f"#field-{name}")
        if field.evaluate("x => x.tagName") == "SELECT":
            field.select_option(text)
        else:
            field.fill(text)
    page.get_by_role("button", name="Answer").click()
    answered(page)


@pytest.mark.parametrize("command", ASKED)
def test_each_form_answers_and_axe_sees_nothing_serious(
    page: Any, server: Server, command: str
):
    fill(page, server, command)
    fields, words = ASKED[command]
    line = page.locator("#now pre").first.inner_text()
    assert line.startswith(f"diffenergy {command} ") and line.endswith("--json")
    names = [x.replace(f"{EXAMPLES}/", "").removeprefix("fleet/") for x in words]
    assert [x for x in names if x not in line.replace("'", "")] == []
    with page.expect_download() as download:
        page.get_by_role("link", name="Download JSON").click()
    assert download.value.suggested_filename == f"{command}.json"
    for name in fields:
        assert name == "posted" or f"{name}=" in page.url
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page.evaluate("document.querySelectorAll('details').forEach(x => x.open = true)")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        violations = axe.run(page).response["violations"]
        serious = [x for x in violations if x["impact"] in ("serious", "critical")]
        nodes = [(x["id"], y["html"]) for x in serious for y in x["nodes"]]
        assert nodes == [], scheme


def test_a_change_answers_at_once_and_a_refusal_stands_at_its_field(
    page: Any, server: Server
):
    open_page(page, server, "estimate", model="gpt2")
    answered(page)
    page.locator("#field-batch").fill("4")
    page.wait_for_url("**batch=4**", timeout=_LONGEST)
    page.locator("#field-batch").fill("0")
    wrong = page.locator("#field-batch-error")
    wrong.filter(has_text="`--batch` is '0'").wait_for(timeout=_LONGEST)
    assert page.locator("#field-batch").get_attribute("aria-invalid") == "true"


def test_two_answers_are_pinned_and_the_address_has_them(page: Any, server: Server):
    late = []  # the first pin is answered after the second

    def hold(route: Any):
        first = not late and route.request.post_data_json["prefix"] == "b"
        late.append(route) if first else route.continue_()

    page.route("**/answer/estimate", hold)
    open_page(page, server, "estimate", model="gpt2", gpu="l40s")
    answered(page)
    for gpu in ("a10", "l4"):
        page.get_by_role("button", name="Pin", exact=True).click()
        page.locator("#field-gpu").fill(gpu)
        page.wait_for_url(f"**gpu={gpu}**", timeout=_LONGEST)
    page.locator("#pin-c pre").wait_for(timeout=_LONGEST)
    late[0].continue_()
    page.locator("#pin-b pre").wait_for(timeout=_LONGEST)
    assert page.locator("#pin-c pre").is_visible()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.locator("#pin-c pre").wait_for(timeout=_LONGEST)
    answered(page)
    lines = page.locator("#answers > section > pre").all_inner_texts()
    assert [x.split("--gpu ")[1].split()[0] for x in lines] == ["l4", "l40s", "a10"]
    left, right = page.locator("#now"), page.locator("#pin-b")
    assert left.bounding_box()["y"] == right.bounding_box()["y"]
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(x => x.id)")
    assert len(ids) == len(set(ids))
    page.get_by_role("button", name="Unpin").first.click()
    page.locator("#pin-c").wait_for(state="hidden")


def test_a_search_shows_progress_and_is_cancelled(page: Any, server: Server):
    page.goto(f"{server.url}/codesign")
    page.locator("#field-model").fill("gpt2")
    page.locator("#field-vary").fill("num_sms,dram_bandwidth")
    page.get_by_role("button", name="Answer").click()
    status = page.locator("#status")
    status.filter(has_text="of at most").wait_for(timeout=_LONGEST)
    page.get_by_role("button", name="Cancel").click()
    status.filter(has_text="Cancelled.").wait_for()
    assert page.locator("#cancel").is_disabled()
    assert server.get("/health")[0] == 200


def test_the_keyboard_is_enough(page: Any, server: Server):
    page.goto(f"{server.url}/gpus")
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the result"
    page.locator("#field-action").focus()
    page.keyboard.type("show")
    page.keyboard.press("Tab")
    page.keyboard.type("l4")
    page.keyboard.press("Enter")
    page.wait_for_url("**name=l4**", timeout=_LONGEST)
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) != "none"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_one_way_and_everything_has_a_name(
    browser: Any, server: Server, scheme: str
):
    context = browser.new_context(
        viewport=_PHONE, is_mobile=True, has_touch=True, color_scheme=scheme
    )
    page = context.new_page()
    open_page(page, server, "estimate", model="gpt2")
    answered(page)
    assert page.evaluate("document.documentElement.scrollWidth") == _PHONE["width"]
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('input, select, button, a')]
        .filter(x => !(x.labels?.length || x.textContent.trim() ||
        x.getAttribute('aria-label'))).map(x => x.outerHTML)"""
    )
    assert nameless == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(x => x.id)")
    assert len(ids) == len(set(ids))
    context.close()
