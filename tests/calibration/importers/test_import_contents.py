"""Pairs of products with random and with left-over weights: two campaigns."""

import dataclasses

import numpy as np
import pytest

from calibration.campaigns import meter
from calibration.campaigns.reading import CampaignReading
from calibration.importers import importers
from diffenergy.corrections import prior_file
from diffenergy.fitting._batches import batches

FILE = "b200_gemm_power_random_vs_uninitialised.csv.gz"
HEAD = (
    "gpu,dtype,m,n,k,avg_power_trtllm_w,avg_power_vllm_w,power_limit_w,"
    "time_trtllm_us,time_vllm_us,weight_mb\n"
)
ROWS = (
    "b200_sxm,bfloat16,64,4096,8192,800,500,1000,30,25,67.1\n"
    "b200_sxm,bfloat16,128,2048,1024,600,450,1000,8,9,4.19\n"
)
CAMPAIGNS = ("trtllm/1.0", "vllm/0.22.0")


def test_each_row_is_a_product_in_two_campaigns(write, read_back):
    tables = importers()["contents"].read(write(HEAD + ROWS, FILE).parent)
    assert set(tables) == {"contents_gemm"}
    back = read_back(tables)["contents_gemm"]
    assert back.num_rows == 4 and set(back.skipped) == {""}
    assert set(back.gpu) == {"b200-sxm"} and set(back.op) == {"gemm"}
    for campaign, times, powers in zip(
        CAMPAIGNS, ((30, 8), (25, 9)), ((800, 600), (500, 450)), strict=True
    ):
        mine = np.flatnonzero(back.campaign == campaign)
        fields = back.fields["gemm"].values
        assert fields["m"][mine].tolist() == [64, 128]
        assert fields["n"][mine].tolist() == [4096, 2048]
        assert fields["k"][mine].tolist() == [8192, 1024]
        assert set(fields["dtype"][mine]) == {"bf16"}
        np.testing.assert_allclose(back.time_s[mine], 1e-6 * np.array(times))
        np.testing.assert_allclose(back.avg_power_w[mine], powers)


def test_one_campaign_fills_its_weights_and_the_other_does_not(write, read_back):
    """As the instruments say: rows of the second alone have left-over weights."""
    tables = importers()["contents"].read(write(HEAD + ROWS, FILE).parent)
    back = dataclasses.replace(read_back(tables)["contents_gemm"], meter=meter)
    unfilled = {}
    for batch in batches(back, prior_file()):
        assert isinstance(batch.reading, CampaignReading)
        left = np.asarray(batch.reading.instrument.unfilled)[batch.rows >= 0]
        unfilled[batch.campaign] = set(left.tolist())
        assert batch.reading.unfilled == bool(left.any())
    assert unfilled == {CAMPAIGNS[0]: {0.0}, CAMPAIGNS[1]: {1.0}}


@pytest.mark.shared_data
def test_the_real_pairs(shared):
    """2,939 of them; random weights draw more where there are few rows."""
    tables = importers()["contents"].read(shared / "data" / "aiconfigurator")
    table = tables["contents_gemm"]
    filled, left = (table[table["campaign"] == x] for x in CAMPAIGNS)
    assert len(filled) == len(left) == 2939
    few = np.flatnonzero(filled["m"].to_numpy() <= 64)
    power = [x["avg_power_w"].to_numpy()[few] for x in (filled, left)]
    assert np.median(power[0] / power[1]) > 1.2
