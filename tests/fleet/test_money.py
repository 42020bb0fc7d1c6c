"""Prices with their units and currencies."""

from pathlib import Path
from typing import Any

import pytest

import diffenergy as de
from diffenergy.prices import read_header, read_price

from .builders import one_pool, write_fleet


@pytest.mark.parametrize(
    "text, value, currency, has_unit",
    [
        ("60", 60.0, None, False),
        ("0.12/kWh", 120.0, None, True),
        ("$0.12/kWh", 120.0, "USD", True),
        ("120 eur/MWh", 120.0, "EUR", True),
        ("€ 60 per MWh", 60.0, "EUR", True),
        ("-5.5 EUR/MWh", -5.5, "EUR", True),
        ("1e-1 CHF / kwh", 100.0, "CHF", True),
        ("60 EUR", 60.0, "EUR", False),
    ],
)
def test_prices_are_read(text: Any, value: float, currency: Any, has_unit: bool):
    result = read_price("price", text)
    assert result.value == pytest.approx(value, rel=1e-12)
    assert (result.currency, result.has_unit) == (currency, has_unit)


def test_a_column_names_its_unit():
    for column, per_mwh, currency, has_unit in (
        ("price", 1.0, None, False),
        ("price_usd_per_kwh", 1e3, "USD", True),
        ("price_per_kwh", 1e3, None, True),
        ("€/MWh", 1.0, "EUR", True),
    ):
        assert read_header("prices.csv", column) == (per_mwh, currency, has_unit)


POINTS = (("m", "x", 1, 10.0, 600.0),)


def planned(folder: Path, of_site: Any, **more: Any) -> Any:
    site = {"name": "main"} | ({} if of_site is None else {"price": of_site})
    path = write_fleet(folder, POINTS, [{"m": 30.0}], one_pool(5, 20), [site])
    return de.fleet.plan(path, objective="cost", **more)


def test_a_unit_is_a_factor_of_a_thousand(tmp_path: Path):
    """3 x 600 + 2 x 20 W for 1 s."""
    price = "0.12 USD/kWh"
    for result in (planned(tmp_path, price), planned(tmp_path, None, price=price)):
        summary = result.summary
        assert summary["cost"] == pytest.approx(1840 / 3.6e6 * 0.12)
        assert (summary["currency"], summary["unit"]) == ("USD", "USD")
        assert summary["assumed"] == {}
        assert any(" USD" in x for x in result.blocks() if isinstance(x, str))


def test_a_bare_number_is_said_to_be_assumed(tmp_path: Path):
    result = planned(tmp_path, 120)
    assert result.value == pytest.approx(1840 / 3.6e9 * 120)
    assert result.summary["assumed"] == {"price": "per MWh"}
    assert result.summary["currency"] is None and result.summary["unit"] is None
    assert any(x == "assumed: price per MWh" for x in result.blocks())


def test_a_series_has_its_unit_in_its_column(tmp_path: Path):
    (tmp_path / "prices.csv").write_text("slot,eur_per_kwh\n0,0.12\n")
    result = planned(tmp_path, "prices.csv")
    assert result.value == pytest.approx(1840 / 3.6e6 * 0.12)
    assert result.summary["currency"] == "EUR" and not result.summary["assumed"]
