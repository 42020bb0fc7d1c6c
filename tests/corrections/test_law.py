"""Energies of processes, memories and links that no fit has seen, by hand."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from chips import rubin

from diffenergy.corrections import (
    PRIOR_FACTORS,
    CorrectionsFile,
    known_process,
    law_of,
    prior_file,
    read_corrections,
    resolve,
)
from diffenergy.corrections._law import memory_factor, node_factor
from diffenergy.files import facts
from diffenergy.fitting._parameters import Parameter, Parameters
from diffenergy.hardware import gpu_names, read_gpu

LEVELS = {
    "global": {"energy_link": 60e-12},
    **{f"node:{x}": {"core_energy": 1.5} for x in ("28nm", "16nm", "12nm", "8nm")},
    **{f"memory:{x}": {"energy_dram": 0.8} for x in ("HBM2e", "HBM3", "GDDR5")},
    "node:4N": {"core_energy": 0.65},
    "node:4NP": {"core_energy": 0.6},
    "architecture:Hopper": {"core_energy": 1.084},
    "architecture:Blackwell": {"core_energy": 1.0436},
    "gpu:b200-sxm": {"core_energy": 1.0436},
    "memory:HBM3e": {"energy_dram": 0.8196},
    "memory:GDDR6": {"energy_dram": 1.2776},
}
"""Of the fit of 2026: Hopper 0.705, Blackwell 0.653."""


@pytest.mark.parametrize(
    ("name", "core", "band", "anchor"),
    [
        ("6nm", 0.96, None, "7nm"), ("5nm", 0.72, (0.56, 0.93), "4N"),
        ("N3E", 0.60, None, "4NP"), ("N3P", 0.573, (0.43, 0.76), "4NP"),
        ("N2", 0.502, (0.36, 0.70), "4NP"), ("N2P", 0.48, None, "4NP"),
        ("A16", 0.43, (0.29, 0.65), "4NP"),
    ],
)  # fmt: skip
def test_processes(name: str, core: float, band: Any, anchor: str):
    """Published claims by hand: 0.55 of ln of the claimed power, from the nearest
    fitted process with its design (a fitted board has its own); 1.645 sd wide."""
    factor, sd, start = node_factor(name, LEVELS)
    assert (factor, start) == (pytest.approx(core, abs=0.0055), anchor)
    result = factor * math.exp(-1.645 * sd), factor * math.exp(1.645 * sd)
    assert result == pytest.approx(band or result, abs=0.0055)
    if name == "N2":
        bare, _, _ = node_factor(name, LEVELS, design=False)
        assert bare == pytest.approx(0.600 * 0.768, rel=1e-3)


def test_memories_and_links():
    """Path 42.6 pJ/B and device: 0.8196 (42.6 + 22)/(42.6 + 31.2) of HBM4; 48 pJ/B of
    a 200G SerDes over the usual 60."""
    for name, factor, sd, anchor in (
        ("HBM4", 0.717, 0.11, "HBM3e"),
        ("HBM4e", 0.646, 0.13, "HBM3e"),
        ("LPDDR5X", 0.929, 0.15, "GDDR6"),
    ):
        result = memory_factor(name, LEVELS)
        assert result[0] == pytest.approx(factor, abs=0.0005), name
        assert result[1:] == (pytest.approx(sd, abs=0.005), anchor), name
    law = law_of("link:nvlink6", LEVELS)
    assert law and law.factor == pytest.approx(48 / 60)
    assert (law.constant, law.sd) == ("energy_link", 0.5)
    assert law_of("link:pigeon", LEVELS) is None


def test_the_anchor_of_what_was_fitted_is_itself():
    for name, row in facts("processes").items():
        if "design" in row:
            assert node_factor(name, LEVELS)[1:] == (0.15, name)
    for name, row in facts("memories")["memory"].items():
        if "fitted" in row and name != "HBM2e":  # its device is HBM2's
            device = facts("memories")["memory"][memory_factor(name, LEVELS)[2]]
            assert device["device"] == row["device"]
            assert law_of(f"memory:{name}", LEVELS) is None


@pytest.mark.parametrize(
    ("tag", "factor", "anchor"),
    [
        ("node:4N", math.exp(-0.55 * 0.41), "7nm"),  # 0.798, fitted 0.65 x 1.084
        ("node:4NP", 0.65 * 1.084 * math.exp(-0.55 * 0.20), "4N"),  # 0.632
        ("memory:HBM3", (42.6 + 31.2) / (42.6 + 31.4), "HBM2"),  # 0.997
        ("memory:HBM3", 0.9 * (42.6 + 31.2) / (42.6 + 31.2), "HBM3e"),
    ],
)
def test_a_law_stands_in_for_what_a_fit_has_not_seen(
    tag: str, factor: float, anchor: str
):
    """Hopper from Ampere, Blackwell from Hopper, as before these were fitted."""
    seen = {"global": LEVELS["global"]}
    if anchor == "4N":
        seen |= {x: LEVELS[x] for x in ("node:4N", "architecture:Hopper")}
    if anchor == "HBM3e":
        seen |= {"memory:HBM3e": {"energy_dram": 0.9}}
    law = law_of(tag, seen, design=True)
    assert law is not None and law.anchor == anchor
    assert law.factor == pytest.approx(factor, rel=1e-9)


@pytest.mark.parametrize("gpu", gpu_names())
def test_every_process_and_memory_has_a_level_or_a_law(gpu: str):
    levels = read_corrections().levels
    for tag in read_gpu(gpu).tags:
        if tag.partition(":")[0] in ("memory", "node"):
            assert tag in levels or tag == "memory:HBM2" or law_of(tag, levels)


@pytest.mark.parametrize("gpu", [x for x in gpu_names() if read_gpu(x).corrections])
def test_a_fitted_level_wins(gpu: str):
    """Constants of a bundled GPU that is no forecast are those of the file's levels, to
    the last bit, and no law speaks but of the core energy of CDNA3 and CDNA4, of which
    no power was read."""
    card, file = read_gpu(gpu), read_corrections()
    laws = ["core_energy"] if card.architecture in ("CDNA3", "CDNA4") else []
    served = vars(jax.device_get(file.serve(card)))
    for name, value in resolve(file.levels, card.tags).items():
        assert name in laws or served[name] == value, name
    for known in (file, prior_file()):
        assert [x.constant for x in known.forecasts(card)] == laws


@pytest.mark.parametrize(("alias", "name"), [
    ("N5", "5nm"), ("N4", "4N"), ("N4P", "4NP"), ("N3", "N3E"), ("3nm", "N3E"),
    ("6nm/5nm", "6nm/5nm"), ("N6/N3P", "6nm/N3P"), ("A16", "A16"),
])  # fmt: skip
def test_names_of_processes(alias: str, name: str):
    assert known_process(alias) == name


def test_of_two_dies_the_second_counts():
    """A base die of N6 under compute dies of N3P is priced as N3P."""
    file = read_corrections()
    both, one = (
        file.serve(rubin(process_node=x)).core_energy for x in ("6nm/N3P", "N3P")
    )
    assert float(both) == float(one) < 0.6


def test_a_foreign_design_on_a_fitted_process():
    """It takes what the fitted design adds: the level of 4NP alone is no chip's."""
    file = read_corrections()
    core = [
        file.levels[tag]["core_energy"]
        for tag in ("node:4NP", "architecture:Blackwell", "gpu:b200-sxm")
    ]
    foreign = rubin(process_node="4NP", memory="HBM3e")
    assert float(file.serve(foreign).core_energy) == pytest.approx(math.prod(core))
    law, *others = [x for x in file.forecasts(foreign) if x.constant == "core_energy"]
    assert (law.sd, law.anchor, law.warning, others) == (0.15, "4NP", "", [])
    kin = dataclasses.replace(foreign, architecture="Blackwell")
    assert float(file.serve(kin).core_energy) == pytest.approx(core[0] * core[1])


def test_what_a_memory_shares_with_its_anchor():
    """The rate that it reaches of the data sheet is that of the fitted type."""
    file = read_corrections()
    new, old = (file.serve(rubin(memory=x)) for x in ("HBM4", "HBM3e"))
    assert float(new.dram_efficiency) == float(old.dram_efficiency)
    ratio = float(new.energy_dram) / float(old.energy_dram)
    assert ratio == pytest.approx(64.6 / 73.8)


def test_readings_of_the_chip_replace_the_law():
    """A fit of five readings frees its dynamic energy; the law is where it began."""
    file, card = read_corrections(), rubin()
    laws = [x.tag for x in file.forecasts(card)]
    assert laws == ["memory:HBM4", "link:nvlink6", "node:N3P"]
    levels = {**file.levels, "gpu:r100": {"dynamic_energy": 1.1}}
    read = CorrectionsFile(levels)
    assert read.forecasts(card) == []
    assert float(read.serve(card).core_energy) == float(file.serve(card).core_energy)


def test_a_file_has_the_levels_that_it_lacks(tmp_path: Path):
    """New priors count in files that were fitted before them."""
    text = json.dumps({"schema": 1, "levels": {"global": {}}})
    path = tmp_path / "old.json"
    path.write_text(text)
    levels = read_corrections(path).levels
    assert {*PRIOR_FACTORS} <= {*levels}
    assert levels["node:28nm"] == {"core_energy": 2.5}


def test_a_fit_starts_from_the_law():
    """Centre and width of a new memory, and the constants that a GPU is fitted with."""
    levels = prior_file().levels
    free = (Parameter("memory:HBM4", "energy_dram"), Parameter("gpu:r100", "leakage"))
    parameters = Parameters(free, {x: dict(y) for x, y in levels.items()})
    law = law_of("memory:HBM4", levels)
    assert law and parameters.centre()[0] == pytest.approx(math.log(law.factor))
    assert parameters.sd()[0] == law.sd
    card = rubin()
    factors = parameters.serving(card.tags, card)(jnp.asarray(parameters.centre()))
    for name in ("core_energy", "energy_dram", "dram_efficiency"):
        served = getattr(prior_file().serve(card), name)
        assert float(getattr(factors, name)) == pytest.approx(float(served)), name


def test_times_of_a_new_architecture_are_those_of_the_one_it_is_like():
    """CDNA5 is like CDNA4: its rates are those that AMD's libraries reach there, the
    energy of its cores that of its own process."""
    file = read_corrections()
    new, old = (file.serve(read_gpu(x)) for x in ("mi455x", "mi355x"))
    for rate in ("tensor_efficiency", "fp8_block_efficiency", "gemm_cycles"):
        assert getattr(new, rate) == getattr(old, rate)
        assert getattr(new, rate) != getattr(file.serve(read_gpu("mi100")), rate)
    assert new.core_energy < old.core_energy
    assert new.idle_scale == 1.0 != old.idle_scale
