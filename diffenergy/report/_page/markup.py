"""Quantities as pages show them."""

from .._format import si as _si


def si(value: int | float | None, unit: str) -> str:
    """Return `format.si` with a real micro sign.

    >>> si(2e-6, "s")
    '2.000 µs'
    """
    return _si(value, unit).replace(f" u{unit}", f" µ{unit}")
