"""Tables of the available GPUs and models."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...units import GiB
from .._blocks import Block, Table
from .._format import QUANTITIES, UNKNOWN, Entries, Entry, plain, si

_ERRORS: Final = "grade of time, power; errors of held-out rows of time/power/energy:"
_WORDS: Final = ("architecture", "mma", "memory", "process_node", "segment")


# --- GPUs


def gpu_list_blocks(entries: Entries) -> list[Block]:
    """Return the blocks that `gpus` prints."""
    columns = (
        ("GPU", "name"),
        ("architecture", "architecture"),
        ("SMs", "num_sms", "{:.6g}"),
        ("MHz", "sm_clock_max_mhz", "{:.6g}"),
        ("GiB", lambda x: x["dram_capacity"] / GiB, "{:.0f}"),
        ("GB/s", lambda x: x["dram_bandwidth"] / 1e9, "{:.0f}"),
        ("W", "tdp_w", "{:.6g}"),
        ("grade", "grade"),
    )
    return [Table(columns, entries, left=2, fold=["grade"])]


def _grades(grades: Mapping[str, str]) -> str:
    """Grades of time and power, a line each; one line if they are equal."""
    return "\n".join(dict.fromkeys((grades["time"], grades["power"])))


def _three(entry: Entry, key: str, form: str) -> str:
    figures = (entry[f"{x}_{key}"] for x in QUANTITIES)
    return "/".join(UNKNOWN if x is None else form.format(x) for x in figures)


def gpu_blocks(summary: Entry) -> list[Block]:
    """Return the blocks that `gpus show` prints."""
    words = ", ".join(str(summary[word]) for word in _WORDS)
    corrections = summary["corrections"]
    served = ", ".join(corrections["levels"]) or "none (priors)"
    expected = corrections["expected"]
    errors = [
        ("held-out rows", "kind"),
        ("grade", lambda x: _grades(x["grades"])),
        ("mean %", lambda x: _three(x, "mape_pct", "{:.1f}")),
        ("5-95 %", lambda x: _three(x, "interval_pct", "{:.0f}")),
        ("rows of", lambda x: ",\n".join(x["over"]) or UNKNOWN),
    ]
    values = (
        ("field", lambda x: x[0]),
        ("value", lambda x: x[1]["value"], plain),
        ("unit", lambda x: x[1]["unit"]),
        ("quality", _quality),
    )
    sources: dict[str, list[str]] = {}
    for field, x in summary["values"].items():
        sources.setdefault(x["source"] or "not stated", []).append(field)
    of = ("of", lambda x: ", ".join(x[1]))
    return [
        f"{summary['name']}: {words}",
        f"also called: {', '.join(summary['aliases']) or '-'}",
        f"applied corrections: {served}; grade: {corrections['grade']}",
        *([_ERRORS, Table(errors, expected, fold=["rows of"])] if expected else []),
        Table(values, summary["values"].items(), fold=["unit", "quality"]),
        Table(("source", of), sources.items(), fold=["source", "of"], left=2),
    ]


def _quality(value: tuple[str, Entry]) -> str:
    words = (value[1]["quality"], value[1]["year"])
    return ", ".join(str(word) for word in words if word)


# --- models


def model_list_blocks(entries: Entries, types: Iterable[str]) -> list[Block]:
    """Return the blocks that `models` prints; `types`: supported values of
    `model_type`."""
    columns = (
        ("model", "name"),
        ("family", "family"),
        ("parameters", "parameters", lambda x: si(x, "").strip()),
        ("layers", "layers", plain),
        ("positions", "max_positions", "{}"),
        ("phase", "phase"),
    )
    return [
        Table(columns, entries, left=2),
        f"and a config.json whose model_type is one of: {', '.join(types)}",
    ]


def model_blocks(summary: Entry) -> list[Block]:
    """Return the blocks that `models show` prints."""
    cache = summary["kv_bytes_per_token"] or {}
    windowed = summary["kv_bytes_per_token_windowed"] or {}
    both = {dtype: cache[dtype] + windowed[dtype] for dtype in cache}
    within = ("of it in windows", lambda x: windowed.get(x[0]), "{:.6g} B")
    stored = (
        "dtype",
        ("weights", lambda x: x[1] / 1e9, "{:.3f} GB"),
        ("KV cache per token", lambda x: both.get(x[0]), "{:.6g} B"),
        *((within,) if any(windowed.values()) else ()),
    )
    state = summary["state_bytes_per_request"]
    sizes = ("size", ("value", lambda x: _text(x[1])))
    return [
        f"{summary['name']}: {summary['family']}, {summary['layers']} layers, "
        f"{summary['parameters']:,} parameters",
        *(f"checkpoint: {sentence}" for sentence in summary["checkpoint"]),
        Table(stored, summary["weight_bytes"].items()),
        *([f"state of a request: {state / 1e6:.6g} MB"] if state else []),
        Table(sizes, summary["sizes"].items(), fold=["value"]),
    ]


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
