"""What does not fit a schema is told in one sentence: key, value, what to give."""

from typing import Any, Literal

import pytest

from diffenergy.schema import Count, Finite, Flag, Positive, Table, Text, fitted


class Link(Table, frozen=True):
    name: Text
    rate: Positive = 1.0
    kind: Literal["ring", "tree"] = "ring"
    wide: Flag = False


class Machine(Table, frozen=True):
    gpus: Count
    links: list[Link] = []
    media: dict[str, dict[str, Finite]] = {}
    main: Link | None = None
    title: Text | None = None


def test_what_fits_is_read():
    result = fitted({"gpus": 2, "links": [{"name": "a", "rate": 3}]}, Machine)
    assert result == Machine(2, [Link("a", 3.0)])
    assert type(result.links[0].rate) is float


LINK = "`links[0]` (a): "


@pytest.mark.parametrize(
    "raw, said",
    [
        ({}, "`gpus` is missing; give a whole number from 1 on."),
        ({"gpus": 0}, "`gpus` is 0; give a whole number from 1 on."),
        ({"gpus": True}, "`gpus` is True; give a whole number from 1 on."),
        ({"main": {"rate": 10**400}}, "`main`: `rate` is 1000"),
        ({"gpu": 1}, "`gpu` is not a key (did you mean `gpus`?); allowed are gpus, "),
        ({"gpus": 1, "links": {}}, "`links` is {}; give tables, `[[links]]`."),
        ({"gpus": 1, "links": [3]}, "`links[0]` is 3; give a table."),
        ({"links": [{"rate": 3}]}, "`links[0]`: `name` is missing; give text in"),
        ({"links": [{"name": " "}]}, "`links[0]` ( ): `name` is ' '; give text in"),
        ({"links": [{"name": "a", "rate": float("nan")}]}, f"{LINK}`rate` is nan; giv"),
        ({"links": [{"name": "a", "rate": float("inf")}]}, f"{LINK}`rate` is inf; giv"),
        ({"links": [{"name": "a", "kind": "x"}]}, f"{LINK}`kind` is 'x'; allowed are "),
        ({"links": [{"name": "a", "wide": 1}]}, f"{LINK}`wide` is 1; allowed are true"),
        ({"links": [{"name": "a", "x y": 1}]}, f"{LINK}`x y` is not a key; allowed ar"),
        ({"media": {"a": {"b": 1, "c": "d"}}}, "`media.a.c` is 'd'; give a finite num"),
        ({"main": {"name": "a", "rate": 0}}, "`main` (a): `rate` is 0; give a number "),
        ({"title": 3}, "`title` is 3; give text in quotes."),
        ([], "the whole is []; give a table."),
    ],
)
def test_what_does_not_fit_is_one_sentence(raw: Any, said: str):
    with pytest.raises(ValueError) as wrong:
        fitted(raw, Machine, "file.toml: ")
    text = str(wrong.value)
    assert text.startswith(f"file.toml: {said}") and text.endswith(".")
