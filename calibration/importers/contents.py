"""The same products with random and with left-over weights, two campaigns on a B200."""

from pathlib import Path
from typing import Final

import pandas as pd

from diffenergy.measurements import Sheet, read_sheet
from diffenergy.measurements.importers.base import (
    files_in,
    finish,
    join,
    name_gpus,
    number,
    pick,
    text,
)

NAME = "contents"
ABOUT = "GEMM power by contents of the weights (AIConfigurator, B200): two campaigns"

_FILE: Final = "b200_gemm_power_random_vs_uninitialised.csv.gz"
_CAMPAIGNS: Final = {"trtllm": "trtllm/1.0", "vllm": "vllm/0.22.0"}
"""By the word in a column's name; the first fills its weights, the second does not."""


def read(path: Path) -> dict[str, pd.DataFrame]:
    """Table `contents_gemm`: a row for each product and campaign."""
    (file,) = files_in(path, (_FILE,)).values()
    sheet = read_sheet(str(file))
    return {
        "contents_gemm": finish(join([_campaign(sheet, word) for word in _CAMPAIGNS]))
    }


def _campaign(sheet: Sheet, word: str) -> pd.DataFrame:
    words = {name: text(name) for name in ("gpu", "dtype")}
    numbers = {name: number(name) for name in ("m", "n", "k", "power_limit_w")}
    read = {
        "time_us": number(f"time_{word}_us"),
        "avg_power_w": number(f"avg_power_{word}_w"),
    }
    table = pick(sheet, words | numbers | read)
    table["op"], table["campaign"] = "gemm", _CAMPAIGNS[word]
    return name_gpus(table)
