"""Figures of a page are read and compared as they are written."""

import pytest
from answers import also, below, figures, quoted, unsaid

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
    for end in ("## Next\n2 s", "```sh\npython z\n```\n2 s", "<!-- elsewhere -->\n2 s"):
        said = below(page + end, 1, 1)
        assert [str(x) for x in quoted(said)] == ["1 s"]
        assert also(said) == ["diffenergy y"]
