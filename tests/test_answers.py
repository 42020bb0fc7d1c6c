"""Figures of a page are read and compared as they are written."""

import pytest
from answers import also, below, figures, quoted, renewed, unmarked, unsaid

SAID = "0.431 J per token, 344 to 567 J in all, 38 % of\nit DRAM, 1,054 tokens/s"
ANSWER = "431.3 mJ per token, energy 344.0 J to 567.1 J; dram 38.3 %; 1054 tokens/s"


def test_numbers_carry_units_over_lines_and_ranges():
    text = "88.8 ms at 350\nW; 5 to 95 %, llama-3.1-8b in 1,538 s, -13.86 %, 3 apples"
    assert [str(x) for x in figures(text)] == [
        "88.8 ms", "350 W", "5 %", "95 %", "1,538 s", "-13.86 %",
    ]  # fmt: skip


def test_the_answer_may_have_more_digits_and_another_prefix():
    assert unsaid(SAID, [ANSWER]) == []


@pytest.mark.parametrize(
    "right, wrong",
    [("0.431", "0.432"), ("567", "568"), ("38 %", "39 %"), ("1,054", "1,064")],
)
def test_one_digit_is_noticed(right: str, wrong: str):
    assert len(unsaid(SAID.replace(right, wrong), [ANSWER])) == 1


@pytest.mark.parametrize("said", ["0.431 s", "0.431 W", "431 J", "+13.9 %"])
def test_unit_and_sign_count(said: str):
    assert unsaid(said, ["431.3 mJ, -13.9 %"]) == [said]


def test_what_comes_from_elsewhere_is_named():
    said = "75.00 ms, and 15 s elsewhere\n<!-- elsewhere: 15 s -->"
    assert [str(x) for x in quoted(said)] == ["75.00 ms"]
    with pytest.raises(ValueError, match="`16 s` of a comment is not in the text"):
        quoted(said.replace("15 s -->", "16 s -->"))


def test_what_follows_from_other_figures_is_worked_out():
    said = "521 J for 693 J: 25 % less\n<!-- 25 % = 1 - 521 / 693 -->"
    assert [str(x) for x in quoted(said)] == ["521 J", "693 J"]
    for wrong in (said.replace("25", "26"), said.replace("521 J", "531 J")):
        with pytest.raises(ValueError, match="is not 1 - 521 / 693"):
            quoted(wrong)


def test_below_ends_at_the_next_command():
    page = "```sh\ndiffenergy x\n```\n\n1 s\n<!-- also: diffenergy\ny -->\n"
    source = "<!-- elsewhere, by `python x.py` -->\n2 s"
    for end in ("## Next\n2 s", "```sh\npython z\n```\n2 s", source):
        said = below(page + end, 1, 1)
        assert [str(x) for x in quoted(said)] == ["1 s"]
        assert also(said) == ["diffenergy y"]


TABLE = """| latency | energy |
|---|---|
| 0 | **-16.50 %** |
| 1 us (recalled) | 12 `-7` |
"""


def test_numbers_that_fill_a_cell_are_figures():
    """Of a cell that begins with one all; not of code, and not of words."""
    answer = "0 s 1 us -16.5 % 12 launches"
    assert unsaid(TABLE, [answer]) == []
    assert unsaid(TABLE.replace("12 ", "13 "), [answer]) == ["13"]
    assert unsaid("13 launches\n", [answer]) == []
    assert unsaid("| a | b |\n|---|---|\n| layer 13 | `13` |\n", [answer]) == []
    named = TABLE.replace("12 ", "13 ") + "<!-- elsewhere: 13 -->"
    assert unsaid(named, [answer]) == []


MARK = "<!-- elsewhere, by `python x.py` -->\n\n"
COMMAND = "```sh\ndiffenergy x\n```\n"


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        (f"# A\n\n{TABLE}", [3]),
        (f"# A\n{COMMAND}\n{TABLE}", []),
        (f"# A\n{COMMAND}<!-- elsewhere -->\n\n{TABLE}", [7]),  # whose are they?
        (f"# A\n{COMMAND}## B\n{TABLE}", [6]),
        (f"# A\n{MARK}{TABLE}", []),
        (f"# A\n{MARK}{TABLE}\n{TABLE}", []),
        (f"# A\n{MARK}## B\n{TABLE}", [5]),
        ("# A\n| word | word 7 |\n|---|---|\n| `7` | 7th |\n", []),
        (f"# A\n```\n{TABLE}```\n", []),
    ],
)
def test_tables_of_figures_need_a_command_or_a_source(page: str, wrong: list[int]):
    commands = [(2, 1)] if COMMAND in page else []
    assert unmarked(page, commands) == wrong


@pytest.mark.parametrize(
    ("before", "answer", "after"),
    [
        ("4.0 s and 4\nms", "4.23 s, 4.6 ms", "4.2 s and 5\nms"),
        ("0.478 J a token", "481.2 mJ", "0.481 J a token"),  # prefixes
        ("1,304 J and 990 W", "1,411.4 J 1004 W", "1,411 J and 1,004 W"),
        ("-12.81 %, +3 %", "-12.4 % 3.3 %", "-12.40 %, +3 %"),  # signs, digits
        ("210 to 516 J", "220.4 J to 530.9 J", "220 to 531 J"),
        ("| 12 | `12` 12 us |\n12", "13", "| 12 | `12` 12 us |\n12"),  # no table
        ("| a |\n|---|\n| 12 |\n\n12", "13", "| a |\n|---|\n| 13 |\n\n12"),
        ("3 s, not 3 s <!-- elsewhere: 3 s -->", "4 s", None),
        ("95 % and 2 s <!-- elsewhere: 95 % -->", "97 % 2.1 s", "95 % and 2 s"),
        (
            "3.0 J for 4.0 J: 25 %\n<!-- 25 % = 1 - 3.0 / 4.0 -->",
            "3.2 J 4.0 J",
            "3.2 J for 4.0 J: 20 %\n<!-- 20 % = 1 - 3.2 / 4.0 -->",
        ),
    ],
)
def test_stale_figures_are_written_as_the_answer_has_them(
    before: str, answer: str, after: str | None
):
    assert renewed(before, [answer])[0].split("<!-- else")[0].strip() == (
        before.split("<!-- else")[0].strip() if after is None else after
    )


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("4.0 s", "4.0 W"),  # no such unit
        ("4.0 s", "5.2 s"),  # too far
        ("4.0 s", "4.2 s 4.3 s"),  # which of the two?
        ("4.0 s", "4.2 s 3.8 s"),
        ("-4.0 %", "4.1 %"),  # of the other sign
    ],
)
def test_figures_that_no_answer_has_are_reported_and_stay(said: str, answer: str):
    assert renewed(said, [answer]) == (said, [said])


def test_two_stale_figures_do_not_become_the_same_one():
    assert renewed("4.0 s, 4.4 s", ["4.2 s"]) == ("4.0 s, 4.4 s", ["4.0 s", "4.4 s"])
