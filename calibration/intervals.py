"""Widths of intervals from left-out rows, and how many of these lie inside the widths
that all others give: of folds that `accuracy.py` ran."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from splits import SPLITS

from diffenergy.corrections._spread import GRADES, trust, widths

if TYPE_CHECKING:
    from .accuracy import Done

WORDS: Final = ("time", "power", "energy")


def spreads(done: Sequence["Done"]) -> dict[str, dict[str, Any]]:
    """Half widths of intervals by kind and grade, from all left-out rows."""
    found: dict[str, dict[str, Any]] = {}
    for key in dict.fromkeys(split.spread for split in SPLITS if split.spread):
        parts: dict[str, list[np.ndarray]] = {word: [] for word in WORDS}
        times: list[np.ndarray] = []
        gpus: list[np.ndarray] = []
        groups: list[np.ndarray] = []
        sources = []
        for split in SPLITS:
            mine = [x for x in done if x.split == split.name and split.spread == key]
            for x in mine:
                times.append(x.numbers["time_pred"])
                gpus.append(x.gpu)
                groups.append(x.groups)
                for word in WORDS:
                    ratio = np.log(x.numbers[word] / x.numbers[f"{word}_pred"])
                    parts[word].append(ratio)
            if mine:
                sources.append(split.left_out)
        if times:
            ratios = {word: np.concatenate(part) for word, part in parts.items()}
            time, gpu = np.concatenate(times), np.concatenate(gpus)
            found[key] = {
                **widths(time, ratios, np.concatenate(groups)),
                "mape_pct": {
                    word: _by_gpu(np.where(time > 1e-4, ratio, np.nan), gpu)
                    for word, ratio in ratios.items()
                },
                "rows": len(time),
                "gpus": sorted({str(x) for x in gpu}),
                "left_out": sorted(set(sources)),
            }
    return found


def _by_gpu(ratio: np.ndarray, gpu: np.ndarray) -> dict[str, float]:
    """Mean absolute percentage error of ln ratios of all rows and of each GPU."""
    size, known = 100 * np.abs(np.expm1(-ratio)), np.isfinite(ratio)
    parts = {"all": known} | {str(x): known & (gpu == x) for x in np.unique(gpu)}
    return {
        name: round(float(size[rows].mean()), 1)
        for name, rows in parts.items()
        if rows.any()
    }


def coverage(done: Sequence["Done"]) -> list[str]:
    """Share of the left-out rows within the 5-95 % intervals that a user would get if
    the widths came from all other groups: by kind, and of each of its splits."""
    kind = {split.name: split.spread for split in SPLITS if split.spread}
    done = [x for x in done if x.split in kind]
    inside = {x.split: {word: [] for word in WORDS} for x in done}
    for group in sorted({str(name) for x in done for name in x.groups}):
        found = spreads([x.rows(x.groups != group) for x in done])
        for x in done:
            _note_inside(inside[x.split], x.rows(x.groups == group), found)
    lines = []
    for key in dict.fromkeys(kind[name] for name in inside):
        splits = [
            split
            for split in SPLITS
            if split.name in inside and kind[split.name] == key
        ]
        whole = {w: [y for x in splits for y in inside[x.name][w]] for w in WORDS}
        lines.append(f"| {key} | all | {_shares(whole)} |")
        lines += [
            f"| | {split.name}: {split.left_out} | {_shares(inside[split.name])} |"
            for split in (splits if len(splits) > 1 else ())
        ]
    return lines


def _shares(inside: dict[str, list[np.ndarray]]) -> str:
    """Percent inside, by quantity."""
    shares = [np.concatenate([*part, np.zeros(0)]) for part in inside.values()]
    return " / ".join(f"{100 * np.mean(x):.0f}" if len(x) else "-" for x in shares)


def _note_inside(
    inside: dict[str, list[np.ndarray]], left: "Done", spread: dict[str, Any]
):
    """Adds which readings of the left-out rows lie inside the intervals of a spread."""
    key = next(split.spread for split in SPLITS if split.name == left.split)
    kind, _, grade = key.partition(":")
    beyond = () if grade in GRADES else (grade,)
    grades = dict.fromkeys(WORDS, "calibrated" if beyond else grade)
    found = trust(spread, kind, grades, "", beyond)
    for word in WORDS:
        width = found.half_width(word, left.numbers["time_pred"])
        ratio = np.log(left.numbers[word] / left.numbers[f"{word}_pred"])
        known = np.isfinite(ratio)
        inside[word].append(np.abs(ratio[known]) <= width[known])
