"""Training steps on many GPUs, of several publications (`training.csv`), in our words;
shapes of their models (`models.csv`) go with them."""

import re
from pathlib import Path
from typing import Final

import pandas as pd

from diffenergy.measurements.importers.base import files_in

NAME = "training"
ABOUT = "published training steps on many GPUs, with the shapes of their models"

_EAGER: Final = ("composer", "eager")
"""Parts of `framework` of programs that launch a kernel an operator."""
_OVERLAPS: Final = {
    "none": "none",
    "dp": "dp",
    "fsdp-prefetch": "dp",
    "tp+dp": "tp+dp",
    "fsdp-prefetch+async-tp": "tp+dp",
}
"""Our words for those of `overlap`; an unstated one is what programs do today."""
_DISPATCH: Final = {"plain": "plain", "fused": "bf16"}
"""Our words for a `dispatcher`."""
_KERNELS: Final = {"composer": "fa1", "torchtitan": "sdpa"}
"""`family` of the attention of a `framework`; of others its year decides."""
_YEARS: Final = {"composer": 2023.6, "torchtitan": 2025.0, "nemo": 2024.5}
"""Year of a `framework` whose `source` does not end in one."""
_RELEASE: Final = re.compile(r"-(\d\d)\.(\d\d)(?:\.\d+)?$")
"""Year and month at the end of a `source`."""
_PAPER: Final = re.compile(r"arxiv-(\d\d)(\d\d)\.")
_WITHOUT_MTP: Final = "w/o MTP"
"""Part of a `note` of rows in which the layers that predict further tokens were off."""
_UNSCORED: Final = "memory and plan only"
"""Part of a `note` of rows whose time says nothing."""


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Tables `training` and `models`; rows keep their order. `recipes.csv` beside them
    says what mixtures ran: overlap of experts' exchange, graphs, dispatcher."""
    files = files_in(path, ("training.csv", "models.csv", "recipes.csv"))
    text = {
        x: pd.read_csv(f, dtype=str, keep_default_na=False) for x, f in files.items()
    }
    table = text["training.csv"]
    program, note = table["framework"], table["note"]
    years = [_year(*x) for x in zip(table["source"], program, strict=True)]
    timeless = note.str.contains(_UNSCORED, regex=False)
    recipes = text.get("recipes.csv")
    recipe = {} if recipes is None else recipes.set_index("row").to_dict("index")
    ran = [recipe.get(row, {}) for row in table["row"]]
    hidden = [x.get("experts_overlap") == "1" for x in ran]
    words = (_OVERLAPS.get(word, "") for word in table["overlap"])
    steps = table.assign(
        overlap=["tp+ep+dp" if x else w for x, w in zip(hidden, words, strict=True)],
        dispatch=[_DISPATCH.get(x.get("dispatcher", ""), "") for x in ran],
        graphs=[x.get("graphs", "") for x in ran],
        stack=["eager" if any(x in p for x in _EAGER) else "serving" for p in program],
        kernels=[_kernels(word) for word in program],
        sums=["bf16" if word.endswith("pure") else "fp32" for word in program],
        software=["" if year is None else repr(year) for year in years],
        mtp=["false" if _WITHOUT_MTP in word else "true" for word in note],
        step_time_s=table["step_time_s"].where(~timeless, ""),
    )
    steps.attrs = {"file": str(files["training.csv"]), "notes": []}
    models = text.get("models.csv")
    return {"training": steps} | ({} if models is None else {"models": models})


def _kernels(framework: str) -> str:
    """`family` of the attention of a program, "" where its year decides."""
    return next((x for name, x in _KERNELS.items() if framework.startswith(name)), "")


def _year(source: str, framework: str) -> float | None:
    """Year of the software, None where nothing tells it."""
    release = _RELEASE.search(source)
    paper = _PAPER.match(source)
    for match in (release, paper):
        if match:
            return 2000 + int(match[1]) + (int(match[2]) - 0.5) / 12
    years = (year for name, year in _YEARS.items() if framework.startswith(name))
    return next(years, None)
