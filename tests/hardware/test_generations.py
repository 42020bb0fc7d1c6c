"""What boards of a generation share, from one table: a GPU is one file."""

import dataclasses
from pathlib import Path

import pytest
from chips import rubin

import diffenergy as de
from diffenergy.collectives import load_topology
from diffenergy.corrections import generation, generations
from diffenergy.files import facts
from diffenergy.hardware import gpu_names, gpu_toml, load_gpu, read_gpu
from diffenergy.plans import host_of

DISPATCH = [f"dispatch_{x}" for x in ("stream", "matrix", "module", "pass")]


def test_what_is_known_of_generations():
    """Rates and media as NVIDIA publishes them; PCIe: transfers x 16 x 128/130 / 8."""
    known = {
        name: (card.link, card.lane / 1e9, card.bus, card.reduces, card.host)
        for name in generations()
        if (card := generation(name)).bus
    }
    assert known == {
        "Pascal": ("nvlink1", 20, "pcie3", False, 2020),
        "Volta": ("nvlink2", 25, "pcie3", False, 2020),
        "Turing": ("nvlink2", 25, "pcie3", False, 2020),
        "Ampere": ("nvlink3", 25, "pcie4", False, 2020),
        "Ada": ("", 0, "pcie4", False, 2020),
        "Hopper": ("nvlink4", 25, "pcie5", True, 2022),
        "Blackwell": ("nvlink5", 50, "pcie5", True, 2022),
        "Rubin": ("nvlink6", 100, "pcie6", True, 2022),
    }
    assert generation("Ampere").bus_rate == pytest.approx(
        16e9 * 16 * 128 / 130 / 8, rel=1e-3
    )
    orders = [generation(name).order for name in generations()]
    assert orders == sorted({*orders})


@pytest.mark.parametrize("name", gpu_names())
def test_bundled_gpus_have_a_generation_and_known_media(name: str):
    card = read_gpu(name).generation
    assert not card.taken_for
    assert {card.link, card.bus} - {""} <= {*facts("memories")["medium"]}
    for gpu in {read_gpu(name).links} - {""}:
        assert gpu in gpu_names()


def test_a_gpu_is_one_file(tmp_path: Path):
    """A Rubin-like GPU: switches that add up, the host of an H100, a machine of 72 with
    its own rate and a network."""
    path = tmp_path / "rubin.toml"
    path.write_text(gpu_toml(rubin()))
    card = read_gpu(str(path))
    assert card.spec.links.switch.tolist() == [1.0] * len(card.spec.links.switch)
    for name in DISPATCH:
        own, h100 = (
            float(getattr(x.corrections, name))
            for x in (card.spec, load_gpu("h100-sxm"))
        )
        assert own == h100 < float(getattr(load_gpu("l40s").corrections, name)), name
    host = host_of(card)
    assert (host.size, host.rate, host.network) == (72, None, 200e9)
    answer = de.estimate("llama-3.1-70b", gpu=str(path), tp=8, phase="decode")
    assert answer.summary["topology"] == "a host of 72"
    assert any("the link nvlink6 was never fitted" in x for x in answer.warnings)
    alone = de.estimate("gpt2", gpu=str(path), phase="decode")
    assert not any("nvlink6" in x for x in alone.warnings)


def test_a_print_of_its_machine(tmp_path: Path):
    """18 links of 100 GB/s to a switch that reduces."""
    (tmp_path / "rubin.toml").write_text(gpu_toml(rubin()))
    names = [f"GPU{i}" for i in range(4)]
    rows = [
        [name, *("X" if name == other else "NV18" for other in names)] for name in names
    ]
    text = tmp_path / "print.txt"
    text.write_text("\n".join("\t".join(row) for row in [["", *names], *rows]))
    machine = load_topology(str(text), gpu=str(tmp_path / "rubin.toml"))
    assert {x.rate for x in machine.links} == {1.8e12}


def test_an_energy_of_its_link():
    """NVLink 6: 6 pJ a bit; what was fitted keeps the usual 60 pJ a byte."""
    assert float(rubin().spec.corrections.energy_link) == pytest.approx(48e-12)
    assert float(load_gpu("b200-sxm").corrections.energy_link) == 60e-12


def test_an_unknown_architecture_is_taken_for_the_newest_with_its_instruction():
    card = rubin(architecture="Feynman")
    assert card.generation.taken_for == "Rubin"
    assert card.spec.links.switch[0] == 1
    own, known = card.spec.corrections, rubin().spec.corrections
    assert float(own.dispatch_matrix) == float(known.dispatch_matrix)
    assert host_of(card).size == 72
    (reported,) = [
        x
        for x in de.estimate("gpt2", gpu=card, phase="decode").warnings
        if "architecture" in x
    ]
    assert "Feynman" in reported and "those of Rubin" in reported


def test_fast_links_of_an_unknown_generation_reduce():
    """NVLink 4 and later have 450 GB/s and more."""
    for rate, reduces in ((1.8e12, 1.0), (3e11, 0.0)):
        card = rubin(architecture="Feynman", mma="mma.sync")
        values = {**card.values, "link_bandwidth": rate}
        card = dataclasses.replace(card, values=values)
        assert card.spec.links.switch[0] == reduces
