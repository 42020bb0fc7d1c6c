"""Numbers with units, against factors by hand."""

import pytest

from diffenergy.hardware import FIELDS
from diffenergy.units import quantity, si, units_like


@pytest.mark.parametrize(
    "text, bare, value",
    [
        ("1.98GHz", "MHz", 1.98e9), ("1410.1", "MHz", 1410.1e6),
        ("1980 mhz", "Hz", 1.98e9), ("0.35kW", "W", 350.0), ("350000mW", "W", 350.0),
        ("64GiB", "B", 68719476736.0), ("64 GB", "B", 64e9),
        ("3.35TB/s", "B/s", 3.35e12), ("0.7us", "s", 0.7e-6),
        ("0.7 \u00b5s", "s", 0.7e-6), ("1.5e3ns", "s", 1.5e-6), ("90s", "min", 90.0),
        ("2h", "min", 7200.0), ("20", "min", 1200.0), ("60\u00b0C", "C", 60.0),
        ("-3.5", "C", -3.5), ("814mm\u00b2", "mm2", 814.0), ("0.7V", "V", 0.7),
        ("2Wh", "J", 7200.0), ("0.4V/GHz", "V/Hz", 0.4e-9), ("5%", "%", 5.0),
        ("1e3", "count", 1000.0), ("0", "s", 0.0),
    ],
)  # fmt: skip
def test_values(text: str, bare: str, value: float):
    assert quantity("x", text, bare) == value


@pytest.mark.parametrize(
    "text, bare, words",
    [
        ("700W", "MHz", "a power; give a clock in Hz, kHz, MHz or GHz"),
        ("1GB", "B/s", "a size; give a rate in"),
        ("1mw", "W", "no unit of a power"),  # milli or mega
        ("1Gb", "B", "reads as bits"),
        ("3 parsec", "s", "'parsec' is no unit of a time"),
        ("10W", "count", "give the number .count. without a unit"),
        ("GHz", "MHz", "allowed is a finite number"),
        ("1e999GHz", "MHz", "allowed is a finite number"),
        ("1,5GHz", "MHz", "allowed is a finite number"),
        ("nan", "", "allowed is a finite number"),
    ],
)
def test_what_is_refused(text: str, bare: str, words: str):
    with pytest.raises(ValueError, match=f"`x` is '{text}'.*{words}"):
        quantity("x", text, bare)


@pytest.mark.parametrize("name", [name for name, x in FIELDS.items() if x.slip])
def test_the_slip_of_a_field_is_a_unit_of_it(name: str):
    assert FIELDS[name].slip in units_like(FIELDS[name].bare_unit)


def test_long_times_are_shown_in_minutes_and_hours():
    shown = [si(x, "s") for x in (999.9, 1000.0, 7199.0, 7200.0, 2.6e6)]
    assert shown == ["999.9 s", "16.67 min", "120.0 min", "2.000 h", "722.2 h"]
    assert si(1500.0, "J") == "1.500 kJ"
