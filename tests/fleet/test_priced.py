"""Rows priced by the product are what `steady_state` answers at their rate."""

from pathlib import Path

import numpy as np
import pytest

from diffenergy import fleet, serving
from diffenergy.fleet import _ask
from diffenergy.fleet._priced import replica_points
from diffenergy.fleet._spec import read_fleet
from diffenergy.hardware import read_gpu
from diffenergy.hardware._clocks import sm_clocks


@pytest.mark.slow
def test_points_are_those_of_the_server_in_balance():
    clock, model = 1080e6, "qwen3-0.6b"
    clocks, batches = np.array([600e6, clock]), np.array([8.0, 32.0])
    card = read_gpu("h100-sxm")
    result = replica_points(model, card, 1, clocks, batches, 512, 64)
    for place in (0, 1):
        load = serving.Load(
            rate=float(result.rate[1, place]),
            max_batch=64,
            input_len=512,
            output_len=64,
        )
        server = serving.deploy(model, "h100-sxm", load)
        own = server.steady(server.costs(), sm_clock=clock)
        served = serving.steady_state(model, "h100-sxm", load, sm_clock=[clock]).summary
        for mine, same, theirs in (
            (result.ttft, own.ttft.quantiles[2], served["ttft_s"]["p95"]),
            (result.tpot, own.tpot.quantiles[2], served["tpot_s"]["p95"]),
            (result.power, own.power, served["avg_power_w"]),
        ):
            assert mine[1, place] == pytest.approx(float(same), rel=1e-5)
            # priced at this very clock, not between those of a table
            assert mine[1, place] == pytest.approx(theirs, rel=0.01)
        assert result.max_batch[1, place] == 64
    assert (np.diff(result.rate, axis=0) > 0).all()  # a higher clock carries more


FLEET = """
demand = "demand.csv"
[[sites]]
name = "here"
[[pools]]
name = "h100"
gpu = "h100-sxm"
count = 4
site = "here"
[[models]]
name = "small"
model = "qwen3-0.6b"
input_len = 512
output_len = 64
slo_ttft_p95_s = 1.0
slo_tpot_p95_s = 0.02
"""


def test_files_stand_beside_that_of_the_fleet(tmp_path: Path):
    """A config, its folder and a GPU file, wherever the command runs; names stay."""
    text = FLEET.replace('gpu = "h100-sxm"', 'gpu = "mine.toml"')
    text = text.replace('model = "qwen3-0.6b"', 'model = "small/config.json"')
    folder = '[[models]]\nname = "{0}"\nmodel = "{0}"\n'
    text += folder.format("small") + folder.format("gpt2")
    (tmp_path / "small").mkdir()
    for name in ("small/config.json", "mine.toml"):
        (tmp_path / name).write_text("")
    (tmp_path / "fleet.toml").write_text(text.replace('"small"', '"one"', 1))
    fleet = read_fleet(str(tmp_path / "fleet.toml"))
    models = [str(tmp_path / x) for x in ("small/config.json", "small")]
    assert [x.model for x in fleet.models] == [*models, "gpt2"]
    assert fleet.pools[0].gpu == str(tmp_path / "mine.toml")
    assert {models[0], fleet.pools[0].gpu} <= set(fleet.files)


@pytest.mark.long
@pytest.mark.slow
def test_clocks_between_those_priced_first_are_never_worse(tmp_path, monkeypatch):
    """The plan with the twelve clocks alone, and the one that moves them: a clock of
    the board, a figure of the server at it."""
    (tmp_path / "fleet.toml").write_text(FLEET)
    (tmp_path / "demand.csv").write_text("slot,model,requests_per_s\n0,small,61\n")
    path = str(tmp_path / "fleet.toml")
    result = fleet.plan(path)
    monkeypatch.setattr(_ask, "rows_between", lambda *_: [])
    fixed = fleet.plan(path)
    assert result.value < fixed.value and result.gap < 0.05
    assert any("clocks between" in x for x in result.notes)
    assert not any("clocks between" in x for x in fixed.notes)
    steps = np.asarray(sm_clocks(read_gpu("h100-sxm"))) / 1e6
    for row in result.summary["plan"]:
        assert np.abs(steps - row["sm_clock_mhz"]).min() < 1e-6
    row = result.summary["plan"][0]
    load = serving.Load(
        rate=row["requests_per_s"], max_batch=row["max_batch"], input_len=512,
        output_len=64,
    )  # fmt: skip
    served = serving.steady_state(
        "qwen3-0.6b", "h100-sxm", load, sm_clock=[row["sm_clock_mhz"] * 1e6]
    ).summary
    assert row["power_w"] == pytest.approx(served["avg_power_w"], rel=0.01)
    # a budget that only those clocks keep, and one that none does
    monkeypatch.undo()
    drawn = [x.summary["site_power"][0]["power_w"] for x in (result, fixed)]
    cheaper = fleet.plan(path, power_budget=sum(drawn) / 2)
    assert cheaper.summary["site_power"][0]["power_w"] <= sum(drawn) / 2
    with pytest.raises(fleet.NoPlan) as refusal:
        fleet.plan(path, power_budget=0.9 * drawn[0])
    assert refusal.value.reason["needed_w"] <= drawn[0] * (1 + 1e-9)
