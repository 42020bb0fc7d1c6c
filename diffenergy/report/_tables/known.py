"""Summaries and tables of the GPUs and models that are known."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...units import GiB
from .._format import QUANTITIES, UNKNOWN, Entries, Entry, plain, si
from .columns import table

if TYPE_CHECKING:
    from ...corrections import CorrectionsFile
    from ...hardware import GpuCard
    from ...workload.models import Model

_STORED: Final = ("fp32", "bf16", "fp8")
_ERRORS: Final = "grade of time, power; errors of left-out rows of time/power/energy:"
_WORDS: Final = ("architecture", "mma", "memory", "process_node", "segment")


# --- GPUs


def gpu_entry(card: "GpuCard", grade: str) -> dict[str, Any]:
    """A GPU in the list of all."""
    v = card.values
    return {
        "name": card.name,
        "architecture": card.architecture,
        "num_sms": v["num_sms"],
        "sm_clock_max_mhz": v["sm_clock_max"] / 1e6,
        "dram_capacity": v["dram_capacity"],
        "dram_bandwidth": v["dram_bandwidth"],
        "tdp_w": v["tdp"],
        "grade": grade,
        "aliases": list(card.aliases),
    }


def gpu_list_parts(entries: Entries) -> list[Any]:
    """What `gpus` prints."""
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
    return [table(columns, entries, left=2, fold=["grade"])]


def gpu_summary(
    card: "GpuCard", units: Mapping[str, str], file: "CorrectionsFile"
) -> dict[str, Any]:
    """A GPU with every value, its unit and source, the levels of the corrections that
    serve it, and the errors to expect."""
    levels = [level for level in ("global", *card.tags) if level in file.levels]
    values = {}
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
            "expected": _expected(card, file),
        },
        "published": card.published,
        "values": values,
    }


def _expected(card: "GpuCard", file: "CorrectionsFile") -> list[dict[str, Any]]:
    """By kind of row: the error of left-out rows of this grade, None where no group of
    the kind was left out, and how far up the 95th percentile is (above 333 us)."""
    found = []
    for kind in dict.fromkeys(key.partition(":")[0] for key in file.spread):
        trust = file.trust(card, kind)
        figures: dict[str, Any] = {"kind": kind, "grades": dict(trust.grades)}
        figures["over"] = sorted({gpu for over in trust.over.values() for gpu in over})
        for word in QUANTITIES:
            width = float(trust.half_width(word, 1.0))
            figures[f"{word}_mape_pct"] = trust.mape_pct.get(word)
            figures[f"{word}_interval_pct"] = round(100 * (math.exp(width) - 1), 1)
        found.append(figures)
    return found


def _grades(grades: Mapping[str, str]) -> str:
    """Of time and of power, a line each; once where they are one."""
    return "\n".join(dict.fromkeys((grades["time"], grades["power"])))


def _three(entry: Entry, key: str, form: str) -> str:
    found = (entry[f"{x}_{key}"] for x in QUANTITIES)
    return "/".join(UNKNOWN if x is None else form.format(x) for x in found)


def gpu_parts(summary: Entry) -> list[Any]:
    """What `gpus show` prints."""
    words = ", ".join(str(summary[word]) for word in _WORDS)
    corrections = summary["corrections"]
    served = ", ".join(corrections["levels"]) or "none (priors)"
    expected = corrections["expected"]
    errors = [
        ("left-out rows", "kind"),
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
        f"corrections that serve it: {served}; grade: {corrections['grade']}",
        *([_ERRORS, table(errors, expected, fold=["rows of"])] if expected else []),
        table(values, summary["values"].items(), fold=["unit", "quality"]),
        table(("source", of), sources.items(), fold=["source", "of"], left=2),
    ]


def _quality(value: tuple[str, Entry]) -> str:
    words = (value[1]["quality"], value[1]["year"])
    return ", ".join(str(word) for word in words if word)


# --- models


def model_entry(model: "Model") -> dict[str, Any]:
    """A model in the list of all."""
    return {
        "name": model.name,
        "family": model.config.values["model_type"],
        "parameters": model.parameters(),
        "layers": _layers(model),
        "max_positions": model.max_positions,
        "phase": model.defaults()["phase"],
    }


def model_list_parts(entries: Entries, types: Iterable[str]) -> list[Any]:
    """What `models` prints; `types`: words of `model_type` that are known."""
    columns = (
        ("model", "name"),
        ("family", "family"),
        ("parameters", "parameters", lambda x: si(x, "").strip()),
        ("layers", "layers", plain),
        ("positions", "max_positions", "{}"),
        ("phase", "phase"),
    )
    return [
        table(columns, entries, left=2),
        f"and a config.json whose model_type is one of: {', '.join(types)}",
    ]


def model_summary(model: "Model") -> dict[str, Any]:
    """A model: its sizes, bytes of the weights by dtype (as they are stored under the
    type of most, None where a checkpoint's cannot be read), what a token adds to the KV
    cache for good and within windows, what a request keeps beside it; what was read of
    the checkpoint's types, or why it was not."""
    sizes = {
        field.name: getattr(model, field.name)
        for field in dataclasses.fields(model)
        if isinstance(getattr(model, field.name), int | float | str | tuple)
        and field.name not in ("blocks", "encoder")
    }
    own = model.defaults()["dtype"]
    checkpoint = getattr(model, "checkpoint", None)  # of language models
    unread = checkpoint.unread if checkpoint else ""
    stored = dict.fromkeys((*_STORED, own))
    cache = {dtype: model.kv_bytes_per_token(dtype) for dtype in _STORED}
    windowed = {dtype: model.kv_bytes_per_token(dtype, True) for dtype in _STORED}
    cached = any(cache.values()) or any(windowed.values())
    return {
        **model_entry(model),
        "dtype": None if unread else own,
        "weight_bytes": {dtype: model.weight_bytes(dtype) for dtype in stored},
        "kv_bytes_per_token": cache if cached else None,
        "kv_bytes_per_token_windowed": windowed if cached else None,
        "state_bytes_per_request": model.state_bytes() if cached else None,
        "checkpoint": [unread] if unread else list(getattr(checkpoint, "said", ())),
        "sizes": sizes,
        "defaults": {k: v for k, v in model.defaults().items() if k != "base"},
    }


def model_parts(summary: Entry) -> list[Any]:
    """What `models show` prints."""
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
        table(stored, summary["weight_bytes"].items()),
        *([f"state of a request: {state / 1e6:.6g} MB"] if state else []),
        table(sizes, summary["sizes"].items(), fold=["value"]),
    ]


def _layers(model: "Model") -> int | None:
    """Layers of a transformer, blocks of a convolutional network."""
    if hasattr(model, "layers"):
        return getattr(model, "layers")  # noqa: B009
    depths = getattr(model, "depths", None)
    return sum(depths) if depths else None


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
