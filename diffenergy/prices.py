"""Prices of energy as people write them: `60`, `0.12 USD/kWh`, `$120/MWh`."""

import re
from typing import Any, Final, NamedTuple

_PER: Final = {"mwh": 1.0, "kwh": 1e3}
"""Factor from a price in this unit to one per MWh."""
_SIGNS: Final = {"$": "USD", "€": "EUR", "£": "GBP"}
_PRICE: Final = re.compile(
    r"(?P<before>[A-Za-z]{3}(?![A-Za-z])|[$€£])?\s*"
    r"(?P<number>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*"
    r"(?P<after>[A-Za-z]{3}(?![A-Za-z])|[$€£])?\s*"
    r"(?:(?:/|per\b)\s*(?P<unit>[A-Za-z]+))?"
)
_HEADER: Final = re.compile(
    r"(?:(?:^|.*[_\W])(?P<currency>[a-z]{3}|[$€£])|.*?)\s*"
    r"(?:_per_|\bper\b|/)\s*(?P<unit>[a-z]+)"
)
PRICES: Final = (
    "a number with /kWh or /MWh, with or without a currency, such as '0.12 EUR/kWh' or "
    "'$120/MWh' (a bare number is per MWh)"
)


class Price(NamedTuple):
    """`value` per MWh; `currency`: its three letters, None where none is named;
    `has_unit`: whether /kWh or /MWh was given."""

    value: float
    currency: str | None
    has_unit: bool


def read_price(name: str, text: float | str) -> Price:
    """Price of energy from `text` or a number (per MWh where no unit stands),
    of the field `name`. Raises `ValueError` in one sentence for what is none.

    >>> read_price("price", "0.12 usd/kWh")
    Price(value=120.0, currency='USD', has_unit=True)
    """
    if not isinstance(text, str):
        return Price(float(text), None, False)
    shown = text.strip()
    match = _PRICE.fullmatch(shown)
    words = [match["before"], match["after"]] if match else []
    named = [x for x in words if x]
    units = any(x.lower() in (*_PER, "gwh", "twh") for x in named)
    if not match or len(named) > 1 or units or not _is_known(match["unit"]):
        raise ValueError(f"`{name}` is '{shown}'; give {PRICES}.")
    unit = match["unit"]
    per = 1.0 if unit is None else _PER[unit.lower()]
    currency = _currency(named[0]) if named else None
    return Price(float(match["number"]) * per, currency, unit is not None)


def read_header(file: str, column: str) -> Price:
    """What 1 in a column of prices is, by the column's name: `eur_per_kwh`,
    `USD/MWh`; a name that says no unit is per MWh."""
    match = _HEADER.fullmatch(column.strip().lower())
    if not match:
        return Price(1.0, None, False)
    if not _is_known(match["unit"]):
        raise ValueError(
            f"{file}: column `{column}` is a price per {match['unit']}; allowed are "
            "prices per kWh or MWh; convert it, and name it such as `eur_per_mwh`."
        )
    word = match["currency"]
    currency = _currency(word) if word else None
    return Price(_PER[match["unit"]], currency, True)


def one_currency(named: dict[str, str | None]) -> str | None:
    """The currency of all sites, `named` by site. Raises `ValueError` for two."""
    named_currencies = {x: y for x, y in named.items() if y}
    if len(set(named_currencies.values())) > 1:
        each = ", ".join(f"{x} in {y}" for x, y in named_currencies.items())
        raise ValueError(
            f"`price` is in more than one currency ({each}); give all prices in one."
        )
    return next(iter(named_currencies.values()), None)


def _is_known(unit: str | None) -> bool:
    return unit is None or unit.lower() in _PER


def _currency(word: str) -> str:
    return _SIGNS.get(word, word.upper())


def per_mwh(name: str, value: Any) -> Any:
    """Price per MWh of a text; what is no text stays as it is."""
    return read_price(name, value).value if isinstance(value, str) else value
