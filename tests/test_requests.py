"""Requests: one record gives names, ranges, signature, docstring and flags."""

import dataclasses
import inspect
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from msgspec import Meta

from diffenergy.cli.flags import as_flags, parameters, read_flags
from diffenergy.requests import (
    Argument,
    BadRequest,
    Clocks,
    Excludes,
    Flag,
    Needs,
    Note,
    Request,
    Whole,
    Wholes,
    accepts,
    declared,
    explicit_fields,
    part,
)

_Share = Annotated[float, Meta(ge=0, lt=1, description="allowed is from 0 to below 1")]


class Common(Request):
    """What two rooms share."""

    size: Annotated[Whole | None, "Tokens [512]."] = None
    kind: Annotated[Literal["small", "large"], "Which kind"] = "small"
    clock: Annotated[Clocks | None, "Clocks to try."] = None


class Brew(Common):
    """A request."""

    what: Annotated[str, Argument("What is brewed.")] = dataclasses.field(kw_only=False)
    share: Annotated[_Share, "Share that is kept"] = 0.5
    table: Annotated[str | None, "A table.", Excludes(("size", "strong"))] = None
    strong: Annotated[bool, "Twice as much."] = False
    rate: Annotated[_Share | None, "Rate.", Needs("table", "a table has one")] = None
    lumps: Annotated[Whole | None, "Sugar.", Needs("kind", "leave it out", "large")] = (
        None
    )
    printed: Annotated[Any, Note("Called when it is done.")] = None


@accepts(Brew)
def brew(request: Brew) -> Brew:
    """What was asked for."""
    return request


def test_a_function_takes_the_fields_of_its_request():
    request = brew("tea", size=3, clock=1.5e9)
    assert (request.what, request.size, request.kind) == ("tea", 3, "small")
    assert request.clock == (1.5e9,)
    taken = inspect.signature(brew).parameters
    assert {*taken} == {x.name for x in dataclasses.fields(Brew)}
    assert taken["kind"].default == "small"
    lines = (brew.__doc__ or "").splitlines()
    assert "    size: Tokens [512]." in lines
    assert "    kind: Which kind [small]." in lines
    assert "    printed: Called when it is done." in lines


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            {"szie": 3},
            "`szie` is no argument of `brew` (did you mean `size`?); allowed ",
        ),
        (
            {"size": 0},
            "`size` is 0; allowed is a whole number from 1 to 1,000,000,000.",
        ),
        ({"size": True}, "`size` is True; allowed is a whole number from 1 to "),
        ({"size": 2.5}, "`size` is 2.5; allowed is a whole number from 1 to "),
        ({"kind": "huge"}, "`kind` is 'huge'; allowed are small, large."),
        ({"share": 1.0}, "`share` is 1; allowed is from 0 to below 1."),
        ({"share": float("nan")}, "`share` is nan; allowed is from 0 to below 1."),
        ({"share": "half"}, "`share` is 'half'; allowed is from 0 to below 1."),
        ({"strong": 2}, "`strong` is 2; allowed are true and false."),
        (
            {"table": "x.csv", "strong": True},
            "`table` is given beside `strong`; leave one of them out.",
        ),
        ({"rate": 0.1}, "`rate` is given without `table`; a table has one."),
        (
            {"lumps": 2, "kind": "".join(("sm", "all"))},  # as read from a shell
            "`lumps` is given without `kind` large; leave it out.",
        ),
    ],
)
def test_one_sentence_refuses(text: dict[str, Any], sentence: str):
    with pytest.raises(ValueError) as error:
        brew("tea", **text)
    assert str(error.value).startswith(sentence)


def test_types_without_a_remedy_are_type_errors():
    with pytest.raises(TypeError, match="`what` is a int; allowed is str"):
        brew(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="`clock` is a str; allowed is int or float"):
        brew("tea", clock=["fast"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="`what` is missing; give it."):
        brew()  # pyright: ignore[reportCallIssue]


def test_numbers_of_numpy_and_whole_numbers_are_numbers():
    request = brew("tea", share=np.float64(0.25), size=np.int64(8))  # pyright: ignore
    assert (request.share, request.size) == (0.25, 8)
    assert type(brew("tea", share=0).share) is float


def test_none_is_left_out():
    assert brew("tea", kind=None, strong=None).kind == "small"  # pyright: ignore
    small = "".join(("sm", "all"))  # equal to the default, but another object
    assert [*explicit_fields(brew("tea", kind=small, size=2))] == ["what", "size"]  # pyright: ignore


def test_a_part_of_a_request_is_that_of_another():
    assert part(Common, brew("tea", size=2), kind="large") == {
        "size": 2, "kind": "large", "clock": None,
    }  # fmt: skip


class Several(Common):
    """The same of lists; the text of its field stays."""

    size: Wholes | None = None  # pyright: ignore[reportIncompatibleVariableOverride]


def test_a_field_with_another_type_keeps_its_text():
    flags = {field.name: flag for field, flag in declared(Several)}
    assert flags["size"].help == "Tokens [512]."
    assert flags["size"].metavar == "N[,N...]"
    assert Several(size=[3, 3, 4]).size == (3, 4)


class Flags(Brew):
    """Flags of a command."""

    where: Annotated[Sequence[str], Flag("Where; repeatable.", "PLACE", many=True)] = ()


def test_flags_follow_from_the_record():
    known = {x.name: x for x in parameters(Flags)}
    assert "printed" not in known  # no flag
    typed = dict.fromkeys(known) | {
        "what": "tea", "size": "8", "clock": "900,1.41GHz", "strong": False,
        "where": ["here", "there"],
    }  # fmt: skip
    request = read_flags(Flags, typed)
    assert (request.size, request.clock) == (8, (9e8, 1.41e9))
    assert (request.kind, request.share) == ("small", 0.5)
    assert request.where == ("here", "there")
    assert request.typed["size"] == "8"
    with pytest.raises(BadRequest) as error:
        read_flags(Flags, typed | {"table": "x.csv"})
    sentence = "`--table` is given beside `--size`; leave one of them out."
    assert as_flags(error.value, Flags) == sentence
    with pytest.raises(ValueError, match="`--where` is ''; give it or leave it out."):
        read_flags(Flags, typed | {"where": [""]})
