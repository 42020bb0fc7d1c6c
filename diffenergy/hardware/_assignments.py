"""`FIELD=VALUE` of a GPU, as texts that change its numbers."""

from .. import reading
from ._checks import CHOSEN
from ._files import field_rule


def assignments(flag: str, texts: list[str]) -> dict[str, float | str]:
    """`FIELD=VALUE`, each field once."""
    values: dict[str, float | str] = {}
    for text in texts:
        field, value = assignment(flag, text)
        if field in values:
            raise ValueError(f"`{flag} {field}` is given twice; give it once.")
        values[field] = value
    return values


def assignment(flag: str, text: str) -> tuple[str, float | str]:
    """`FIELD=VALUE` of a GPU -> (field, value in SI or word).

    >>> assignment("--set", "l2_capacity=50MB"), assignment("--set", "memory=HBM4")
    (('l2_capacity', 50000000.0), ('memory', 'HBM4'))
    """
    field, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not field:
        raise ValueError(
            f"`{flag}` is '{text}'; give FIELD=VALUE, such as dram_bandwidth=6.7TB/s."
        )
    if field in CHOSEN:
        return field, value
    return field, reading.number(f"{flag} {field}", value, field_rule(field).bare_unit)
