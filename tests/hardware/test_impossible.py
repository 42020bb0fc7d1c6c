"""Chips that cannot be: refused in a file, said of a what-if and of a design."""

from typing import Any

import pytest
from chips import rubin

import diffenergy as de
from diffenergy import codesign
from diffenergy.hardware import gpu_names, read_gpu
from diffenergy.hardware._checks import doubts

KNOWN = {
    "b300": "int8",  # published rates contradict each other (LOOSE in test_files.py)
    "gb300": "int8",
    "k20m": "l2_bytes_per_cycle",
    "k40c": "l2_bytes_per_cycle",
    "mi300x": "num_dies",  # chiplets
    "mi355x": "num_dies",
}


@pytest.mark.parametrize("name", gpu_names())
def test_bundled_gpus_are_possible(name: str):
    impossible, unlikely = doubts(read_gpu(name))
    assert not impossible
    assert len(unlikely) == (name in KNOWN)
    assert KNOWN.get(name, "") in "".join(unlikely)


def test_a_rubin_like_chip_is_possible():
    assert doubts(rubin()) == ([], [])


def test_a_what_if_is_answered_with_a_warning():
    request: Any = {"gpu": "h100-sxm", "phase": "decode"}
    answer = de.estimate("gpt2", **request, changes={"dram_bandwidth": 6e12})
    (said,) = answer.warnings
    assert "`dram_bandwidth` is 6e+12, 1200 GB/s for each of 5 stacks of HBM3" in said
    assert not de.estimate("gpt2", **request, changes={"num_sms": 160}).warnings
    known = de.estimate("gpt2", gpu="k20m", phase="decode", changes={"tdp": 220})
    assert not [x for x in known.warnings if "l2_bytes" in x]  # so is the K20m


def test_a_die_beyond_the_reticle():
    """The 132 SMs of an H100 take about 730 of its 814 mm2; 450 MB more of L2 add 16 x
    0.021 um2 a byte, 151 mm2."""
    answer = de.estimate(
        "gpt2", gpu="h100-sxm", phase="decode", changes={"l2_capacity": 5e8}
    )
    (said,) = answer.warnings
    assert "`l2_capacity`" in said and "more than the 858" in said


@pytest.mark.slow
def test_a_design_says_what_it_cannot_be():
    """The fastest has twice the SMs, which no mask holds."""
    result = codesign.search(
        "gpt2",
        "h100-sxm",
        phase="prefill",
        batch=16,
        goals="time",
        vary={"num_sms": (132, 264)},
        effort=codesign.Effort(starts=2, rounds=2),
    )
    assert result.best.fields["num_sms"] > 200
    assert any("`num_sms`, " in x and "than the 858" in x for x in result.notes)
