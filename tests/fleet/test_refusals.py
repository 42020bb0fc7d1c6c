"""What fleets, their tables and prices cannot be."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from refusals import File, Refusal, row

import diffenergy as de

EXAMPLE = Path("docs/examples/fleet")
plan = partial(de.fleet.plan, str(EXAMPLE / "fleet.toml"))


def beside(changed: str, **options: Any) -> Any:
    """The plan of the example with one of its files changed."""
    folder = Path(changed).parent
    for path in EXAMPLE.iterdir():
        if not (folder / path.name).exists():
            (folder / path.name).write_text(path.read_text())
    return de.fleet.plan(str(folder / "fleet.toml"), **options)


def spoilt(sentence: str, name: str, old: str, new: str, **options: Any) -> Any:
    """A row with the first `old` of a file of the example replaced."""
    text = (EXAMPLE / name).read_text()
    assert old in text
    return row(sentence, beside, File(text.replace(old, new, 1), name), **options)


FLEETS = [
    spoilt(sentence, "fleet.toml", old, new)
    for old, new, sentence in (
        ('site = "south"', 'site = "west"', "`site` is 'west'"),
        ('name = "code"', 'name = "chat"', "`name` is 'chat' twice"),
        ('demand = "demand.csv"', "", "`demand` is missing"),
        ('gpu = "l40s"', 'gpu = "l41"', "is on `gpu` 'l41'"),
        ("start_j = 24000", "start_j = 1\nstart_s = 1", "one of both"),
        ("parked_w = 30", 'node = "dgxh100"', "`node` is 'dgxh100' .. `dgx-h100`"),
        ("parked_w = 30", 'node = "no.toml"', "no.toml', but there is no such file"),
        ("parked_w = 30", "spare = 0.2", "`south-l40s` has `spare` and no `node`"),
        ("parked_w = 30", 'node = "pcie8"\nspare = 1.0', "`spare` is 1"),
        ("parked_w = 30", 'node = "pcie8"\nhosts = "of"', "allowed are on, off"),
        ("parked_w = 30", 'parked_w = 30\nnode = "pcie8"\nhosts = "off"',
         "has `hosts` off and `parked_w` 30; a GPU draws nothing"),
    )
] + [row("no pool has a GPU; give a `count`", beside, File(
    re.sub("count = [0-9]+", "count = 0", (EXAMPLE / "fleet.toml").read_text()),
    "fleet.toml",
))] + [spoilt("not every site has a `carbon`", "fleet.toml", "carbon = 320\n", "",
            objective="carbon")]  # fmt: skip
TABLES = [
    spoilt(sentence, name, old, new)
    for name, old, new, sentence in (
        ("demand.csv", "0,chat,60", "0,chat,-1", "`requests_per_s` is '-1'"),
        ("demand.csv", "0,chat", "0,chatty", "`model` is 'chatty'"),
        ("demand.csv", "1,code,25\n", "", "`code` has no row in slot 1"),
        ("demand.csv", "1,code,25", "0,code,25", "`code` has 2 rows in slot 0"),
        ("demand.csv", "requests_per_s", "rps", "`requests_per_s` is missing"),
        ("demand.csv", "3,code", "2.5,code", "`slot` is '2.5'"),
        ("demand.csv", "slot,model,requests_per_s\n0,",
         "slot,model,requests_per_min\n0,", "requests_per_min"),
        ("carbon_north.csv", "3,120\n", "", "there are 3 slots"),
        ("carbon_north.csv", "3,120", "3,low", "is 'low'"),
        ("carbon_north.csv", "2,", "1,", "slot 1 has 2 rows; give one row"),
        ("carbon_north.csv", "slot", "hour", "add `slot` (from 0 on) or `time`"),
        ("points.csv", "4.694", "0", "`requests_per_s` is '0'"),
        ("points.csv", "power_w", "power_kw", "power_kw"),
        ("points.csv", "sm_clock_mhz", "power_kw", "power_kw"),
        ("points.csv", "chat,l40s,1,", "chat,l40s,1.5,", "gpus_per_replica"),
        ("points.csv", "0.0213,262", "0.0213,20", "parked"),
        ("points.csv", "0.0213,262", "0.0213,", "`power_w` is empty"),
        ("points.csv", "power_w", "wall_power_w", "has no `node`; give its node"),
    )
] + [
    row("no data row", beside, File("model,gpu,gpus_per_replica,requests_per_s,"
        "ttft_p95_s,tpot_p95_s,power_w\n", "points.csv")),
    row("`chat` has no row on a GPU of the pools", beside, File(
        "model,gpu,gpus_per_replica,requests_per_s,ttft_p95_s,tpot_p95_s,power_w\n"
        "chat,tpu,1,1,1,1,1\n", "points.csv")),
    row("allowed are two, `slot` and the values of `carbon`", plan,
        objective="carbon", carbon=File("slot,a,b\n0,1,2\n", "carbon.csv")),
    row("there are both `slot` and `time`", plan,
        objective="carbon", carbon=File("slot,time,a\n0,1,2\n", "carbon.csv")),
    row("slot 0 is at 2024-05-12T10:00:00Z, but in the demand at 2024-05-12T09", beside,
        File("time,model,requests_per_s\n2024-05-12 09:00,chat,1\n"
             "2024-05-12 09:00,code,1\n", "demand.csv"),
        carbon=File("time,a\n2024-05-12 10:00,9\n", "carbon.csv")),
    row("`time` is 'nine'", beside, File(
        "time,model,requests_per_s\nnine,chat,1\nnine,code,1\n", "demand.csv")),
    row("after 2024-05-12T09:00:00Z comes 2024-05-12T11:00:00Z", beside, File(
        "time,model,requests_per_s\n" + "".join(
            f"2024-05-12T{hour}:00Z,{model},1\n"
            for hour in ("09", "11") for model in ("chat", "code")
        ), "demand.csv"), carbon=100.0),
]  # fmt: skip
TEXT = (EXAMPLE / "fleet.toml").read_text().replace("70 EUR/MWh", "$70/MWh")
PRICES = [
    *(
        row(f"`price` is '{text}'; .. /kWh or /MWh", plan, price=text)
        for text in ("0.12 USD/J", "12 ct/kWh", "5 kWh", "USD EUR 5/kWh", "cheap",
                     "$5 USD/kWh", "nan")
    ),
    row("per gj; allowed are", plan, objective="cost",
        price=File("slot,eur_per_gj\n0,1\n1,1\n2,1\n3,1\n", "price.csv")),
    row("north in USD, south in EUR", beside, File(TEXT, "fleet.toml"),
        objective="cost"),
    row("`carbon` is -5", plan, carbon=-5.0),
]  # fmt: skip


@pytest.mark.parametrize("refusal", FLEETS + TABLES + PRICES)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
