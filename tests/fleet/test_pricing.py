"""What there is no time to price is left out, and told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from json_keys import check

from diffenergy import fleet
from diffenergy.fleet import _ask
from diffenergy.fleet import _priced as rows
from diffenergy.fleet._priced import Points

POOL = """
[[pools]]
name = "{0}"
gpu = "{0}"
count = 4
site = "here"
"""
MODEL = """
[[models]]
name = "{0}"
model = "qwen3-0.6b"
input_len = 512
output_len = 64
"""
FLEET = "\n".join(
    [
        'demand = "demand.csv"',
        '[[sites]]\nname = "here"',
        *(POOL.format(x) for x in ("h100-sxm", "l40s")),
        *(MODEL.format(x) for x in ("chat", "code")),
    ]
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    def curve(model: int, wanted: Any, card: Any, pools: list[int], tp: int) -> Any:
        """10 requests/s a GPU for 500 W."""
        figures = (10.0 * tp, 0.1, 0.01, 500.0 * tp, 1.0)
        points = Points(*(np.array([[x]]) for x in figures))
        return rows.Curve(model, pools, tp, np.array([1e9]), points, np.array([True]))

    monkeypatch.setattr(rows, "_curve", curve)
    (tmp_path / "fleet.toml").write_text(FLEET)
    (tmp_path / "demand.csv").write_text(
        "slot,model,requests_per_s\n0,chat,9\n0,code,9\n"
    )
    return str(tmp_path / "fleet.toml")


def ends_after(number: int) -> Callable[[Any], Callable[[], bool]]:
    """A clock of pricing with time for so many plans."""

    def begin(_: Any) -> Callable[[], bool]:
        left = [number]

        def late() -> bool:
            left[0] -= 1
            return left[0] < 0

        return late

    return begin


def test_all_is_priced_in_time(path: str):
    seen: list[tuple[str, int, int]] = []
    result = fleet.plan(path, progress=lambda *x: seen.append(x))
    check("fleet", result.to_json())
    assert result.summary["pricing"] == {"plans": 8, "left_out": []}
    assert not result.summary["search"]["ended_by_time"]
    priced = [x for x in seen if x[0].startswith("pricing")]
    assert priced[0] == ("pricing chat on h100-sxm, tp 1", 0, 4)
    assert priced[-1] == ("pricing code on l40s, tp 2", 3, 4)


def test_what_is_left_out_is_told(path: str, monkeypatch: pytest.MonkeyPatch):
    """Every model has its first GPU type before the second one's turn."""
    monkeypatch.setattr(_ask.Effort, "pricing_ends", ends_after(4))
    result = fleet.plan(path)
    left = ["chat on l40s, tp 1", "code on l40s, tp 1"]
    assert result.summary["pricing"] == {"plans": 4, "left_out": left}
    assert {x["pool"] for x in result.summary["plan"]} == {"h100-sxm"}
    assert any("without chat on l40s, tp 1" in note for note in result.notes)


def test_what_fits_no_gpu_is_told(path: str, monkeypatch: pytest.MonkeyPatch):
    priced = rows._curve

    def curve(model: int, wanted: Any, card: Any, pools: list[int], tp: int) -> Any:
        return priced(model, wanted, card, pools, tp) if card.name in fit else "full."

    monkeypatch.setattr(rows, "_curve", curve)
    fit = ["h100-sxm"]
    notes = fleet.plan(path).notes
    assert any("`chat` does not run on l40s: full." in note for note in notes)
    fit = []
    with pytest.raises(ValueError, match="no pool can run model `chat`; on .*: full."):
        fleet.plan(path)


def test_a_model_without_a_row_is_no_plan(path: str, monkeypatch: pytest.MonkeyPatch):
    for plans in (0, 2):
        monkeypatch.setattr(_ask.Effort, "pricing_ends", ends_after(plans))
        with pytest.raises(fleet.NoPlan, match="raise `time_limit`") as refusal:
            fleet.plan(path)
        assert refusal.value.reason["limit"] == "time"
