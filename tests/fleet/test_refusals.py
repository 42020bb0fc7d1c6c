"""What prices of fleets cannot be."""

from functools import partial
from pathlib import Path

import pytest
from refusals import File, Refusal, row

import diffenergy as de

EXAMPLE = Path("docs/examples/fleet")
plan = partial(de.fleet.plan, str(EXAMPLE / "fleet.toml"))


TEXT = (EXAMPLE / "fleet.toml").read_text().replace("70 EUR/MWh", "$70/MWh")
for table in ("demand.csv", "points.csv", "carbon_north.csv"):
    TEXT = TEXT.replace(f'"{table}"', f'"{(EXAMPLE / table).resolve()}"')
TWO_CURRENCIES = File(TEXT, "fleet.toml")

PRICES = [
    *(
        row(f"`price` is '{text}'; .. /kWh or /MWh", plan, price=text)
        for text in ("0.12 USD/J", "12 ct/kWh", "5 kWh", "USD EUR 5/kWh", "cheap",
                     "$5 USD/kWh", "0.12 USD/GWh", "nan", "0.12//kWh")
    ),
    row("per gj; allowed are", plan, objective="cost",
        price=File("slot,eur_per_gj\n0,1\n1,1\n2,1\n3,1\n", "price.csv")),
    row("north in USD, south in EUR", de.fleet.plan, TWO_CURRENCIES, objective="cost"),
]  # fmt: skip


@pytest.mark.parametrize("refusal", PRICES)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)
