"""GPUs as JSON: an entry of the list of all, and one GPU whole."""

from typing import Any, Final

from ..corrections import CorrectionsFile, expected_errors
from ._card import GpuCard
from ._files import field_units

_WORDS: Final = ("architecture", "mma", "memory", "process_node", "segment")


def gpu_entry(card: GpuCard, file: CorrectionsFile) -> dict[str, Any]:
    """A GPU in the list of all, with its grade by `file`."""
    v = card.values
    return {
        "name": card.name,
        "architecture": card.architecture,
        "num_sms": v["num_sms"],
        "sm_clock_max_mhz": v["sm_clock_max"] / 1e6,
        "dram_capacity": v["dram_capacity"],
        "dram_bandwidth": v["dram_bandwidth"],
        "tdp_w": v["tdp"],
        "grade": file.trust(card).grade,
        "aliases": list(card.aliases),
    }


def gpu_summary(card: GpuCard, file: CorrectionsFile) -> dict[str, Any]:
    """A GPU with every value, its unit and source, the levels of the corrections that
    serve it, and the errors to expect."""
    levels = [level for level in ("global", *card.tags) if level in file.levels]
    units, values = field_units(), {}
    for field, value in card.values.items():
        source = card.provenance.get(field, {})
        about = {key: source.get(key) for key in ("source", "quality", "year")}
        values[field] = {"value": value, "unit": units[field], **about}
    return {
        "name": card.name,
        **{word: getattr(card, word) for word in _WORDS},
        "aliases": list(card.aliases),
        "mem_clocks_mhz": [clock / 1e6 for clock in card.mem_clocks],
        "corrections": {
            "levels": levels,
            **file.trust(card).to_json(),
            "expected": expected_errors(card, file),
        },
        "published": card.published,
        "values": values,
    }
