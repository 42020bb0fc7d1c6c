"""GPU files: the bundled ones are complete and consistent, bad ones are refused."""

import dataclasses
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import equinox as eqx
import pytest

from diffenergy.corrections import CONSTANTS, prior_file, read_corrections
from diffenergy.hardware import (
    FIELDS,
    MMA_KINDS,
    GpuSpec,
    gpu_names,
    gpu_toml,
    load_gpu,
    read_gpu,
    with_fields,
)
from diffenergy.imports import bundled_gpu

DECIDED_BY_NAMES = {"mma_kind", "corrections", "links"}
NUMBERS = {field.name for field in dataclasses.fields(GpuSpec)} - DECIDED_BY_NAMES
ASSUMED = {field for field, rule in FIELDS.items() if rule.default is not None}
"""Numbers that a file may leave out."""
# Published figures that the vendor's own other figures contradict, and by how much.
LOOSE = {
    ("b300", "fp4"): 0.10,
    ("b300", "int8"): 0.10,
    ("b300", "fp32"): 0.10,  # the figure of the GB300
    ("gb300", "int8"): 0.10,
    ("gb300", "fp64"): 0.10,
    ("b300", "bandwidth"): 0.015,  # the driver reports 7680 bits
    ("h100-pcie", "bandwidth"): 0.025,  # published as "2 TB/s"
    ("h800-sxm", "fp64"): 0.035,  # published as "1 TFLOPS"
}


@pytest.mark.parametrize("name", gpu_names())
class TestBundled:
    def test_has_every_field_with_a_source(self, name: str):
        card, spec = read_gpu(name), read_gpu(name).spec
        assert card.name == name
        assert set(card.values) == NUMBERS
        assert set(card.provenance) >= NUMBERS - ASSUMED
        for field in NUMBERS:
            assert float(getattr(spec, field)) == card.values[field]
        assert MMA_KINDS[int(spec.mma_kind)] == card.mma
        assert card.served_as == (card.corrections or name)

    def test_published_peaks_follow_from_the_rates(self, name: str):
        card = read_gpu(name)
        for dtype, peak in card.published.items():
            if dtype == "bandwidth":
                derived, stated = card.values["dram_bandwidth"], peak
            else:
                unit = "fma" if dtype in ("fp32", "fp64") else "tensor"
                rate = card.values[f"{unit}_flop_per_cycle_{dtype}"]
                derived = card.values["num_sms"] * rate * peak["clock"]
                stated = peak["flops"]
            tolerance = LOOSE.get((name, dtype), 0.01)
            assert derived == pytest.approx(stated, rel=tolerance), dtype

    def test_clocks_and_capacities_make_sense(self, name: str):
        card = read_gpu(name)
        numbers = card.values
        assert numbers["mem_clock"] in card.mem_clocks
        assert numbers["l2_capacity"] < numbers["dram_capacity"]
        # An L2 slower than DRAM would make it pointless.
        l2 = numbers["l2_bytes_per_cycle"] * numbers["sm_clock_max"]
        assert l2 > numbers["dram_bandwidth"]
        assert numbers["power_limit_min"] <= numbers["tdp"]
        assert numbers["tdp"] <= numbers["power_limit_max"]
        for peak in card.published.values():
            if isinstance(peak, dict):
                assert peak["clock"] <= 1.001 * numbers["sm_clock_max"]

    def test_round_trip(self, name: str, tmp_path: Path):
        card = read_gpu(name)
        path = tmp_path / "copy.toml"
        path.write_text(gpu_toml(card), encoding="utf-8")
        assert read_gpu(str(path)) == dataclasses.replace(card, path=path)


def test_every_spelling_names_one_gpu():
    owner: dict[str, str] = {}
    for name in gpu_names():
        for alias in (name, *read_gpu(name).aliases):
            folded = re.sub(r"[\s_-]+", "-", alias.lower())
            assert owner.setdefault(folded, name) == name, alias


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"), ("a100_sxm", "a100-sxm-80gb"),
        ("nvidia h100 80gb hbm3", "h100-sxm"), ("A10", "a10"), (" L40S ", "l40s"),
        ("GeForce GTX TITAN X", "titan-x-maxwell"), ("NVIDIA TITAN Xp", "titan-xp"),
        ("AMD Radeon Instinct MI50", "mi50"), ("rtx_pro_6000_server", "rtx-pro-6000"),
    ],
)  # fmt: skip
def test_spellings(spelling: str, name: str):
    assert read_gpu(spelling).name == name


@pytest.mark.parametrize(
    ("family", "board"),
    [
        ("h100", "h100-sxm"),
        ("NVIDIA A100", "a100-sxm-80gb"),  # the larger memory
        ("a100_pcie", "a100-pcie-80gb"),
        ("p100", "p100-pcie-16gb"),  # the only one
    ],
)
def test_a_family_is_its_sxm_board_and_says_so(family: str, board: str):
    card = read_gpu(family)
    assert (card.name, card.is_assumed) == (board, True)
    assert with_fields(card, {"tdp": 250}).is_assumed
    assert not read_gpu(board).is_assumed


def test_measured_data_name_their_board():
    """Which A100 was measured is nothing to assume."""
    words = {"A100": None, "NVIDIA H200": "h200-sxm", "Voodoo 2": None, "": None}
    assert {word: bundled_gpu(word) for word in words} == words


# --- files of one's own


def edited(tmp_path: Path, pattern: str, replacement: str) -> str:
    """Path of an H100 file with one edit; `pattern` is anchored to line starts."""
    text, edits = re.subn(
        rf"(?m)^{pattern}", replacement, gpu_toml(read_gpu("h100-sxm")), count=1
    )
    assert edits == 1
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_file_without_corrections_takes_those_of_its_relatives(tmp_path: Path):
    card = read_gpu(edited(tmp_path, r"corrections = .*\n", ""))
    assert card.corrections is None
    card = dataclasses.replace(card, name="mine")
    assert card.tags == (
        "architecture:Hopper", "mma:wgmma", "memory:HBM3", "link:nvlink4", "node:4N",
        "gpu:mine",
    )  # fmt: skip
    levels = read_corrections().levels
    factors = [levels.get(tag, {}).get("core_energy", 1.0) for tag in card.tags]
    value = levels["global"]["core_energy"] * math.prod(factors)
    assert float(card.spec.corrections.core_energy) == pytest.approx(value, rel=1e-12)
    assert not eqx.tree_equal(card.spec.corrections, load_gpu("h100-sxm").corrections)


@pytest.mark.parametrize("word", ["Feynman", "CDNA5", "Blackwell2"])
def test_a_new_architecture_has_the_constants_that_all_share(tmp_path: Path, word: str):
    """No file of the package has to name it first; nothing is known of it, so that
    every grade is `forecast`. Of the process it takes what the fitted design made of
    it: the level of 4N alone (0.65) is no chip's."""
    path = edited(tmp_path, r"architecture = .*", f'architecture = "{word}"')
    card = dataclasses.replace(read_gpu(path), corrections=None, name="mine")
    file = read_corrections()
    kin = ("mma:wgmma", "memory:HBM3", "node:4N", "architecture:Hopper")
    factors = [file.levels.get(tag, {}).get("core_energy", 1.0) for tag in kin]
    value = file.levels["global"]["core_energy"] * math.prod(factors)
    assert float(card.spec.corrections.core_energy) == pytest.approx(value, rel=1e-12)
    assert {file.grade(card, "gemm", x) for x in ("time", "power")} == {"forecast"}


def test_constants_of_another_file():
    card = read_gpu("h100-sxm")
    priors = card.served(prior_file())
    assert float(priors.corrections.leakage_efold) == CONSTANTS["leakage_efold"].centre
    assert eqx.tree_equal(priors.links, card.spec.links)
    assert not eqx.tree_equal(priors.corrections, card.spec.corrections)


def test_tables_are_optional(tmp_path: Path):
    card = read_gpu(edited(tmp_path, r"\[published\](?s:.*)", ""))
    assert (card.published, card.physical, card.provenance) == ({}, {}, {})
    # copies keep the corrections of the original
    assert eqx.tree_equal(card.spec.corrections, load_gpu("h100-sxm").corrections)
    card = read_gpu(edited(tmp_path, r"mem_clocks = .*\n", ""))
    assert card.mem_clocks == (2.619e9,)


def test_numbers_with_a_meaning_when_absent():
    card, measured = read_gpu("h100-sxm"), read_gpu("rtx-3080-ti")
    assert card.values["sm_clock_applied_share"] == 1
    assert card.values["vf_unlocked_slope"] == 0
    assert float(measured.spec.sm_clock_applied_max) == pytest.approx(1.86e9, rel=1e-3)


def test_awkward_text_round_trips(tmp_path: Path):
    source = {"source": 'a "quoted" \\ tab\tand é', "quality": "guess", "year": 2026}
    card = dataclasses.replace(
        read_gpu("t4"),
        provenance={"odd key": source},
        physical={"odd key": 1.5, "flag": True},
    )
    path = tmp_path / "odd.TOML"
    path.write_text(gpu_toml(card), encoding="utf-8")
    assert read_gpu(str(path)) == dataclasses.replace(card, path=path)


def test_the_chip_of_the_docs_is_a_b200_with_the_lines_of_its_page():
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "how-to" / "my-chip.md").read_text(encoding="utf-8")
    [lines] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    chip, new, like = map(
        tomllib.loads,
        ((docs / "examples" / "my-chip.toml").read_text(encoding="utf-8"), lines,
         gpu_toml(read_gpu("b200-sxm"))),
    )  # fmt: skip
    for file in (chip, like):
        for name in ("provenance", "physical"):
            del file[name]
    for name in ("corrections", "machine", "published"):
        del like[name]
    assert chip == like | new and all(like[name] != new[name] for name in new)


# --- changed fields


def test_with_fields_replaces_numbers_and_their_source():
    card = read_gpu("h100-sxm")
    faster = with_fields(card, {"dram_bandwidth": 6.7e12, "num_sms": 140})
    assert float(faster.spec.dram_bandwidth) == 6.7e12
    assert float(faster.spec.num_sms) == 140
    assert float(card.spec.num_sms) == 132
    assert faster.provenance["num_sms"]["source"] == "set by the caller"
    assert eqx.tree_equal(faster.spec.corrections, card.spec.corrections)


def test_listing_and_import_do_not_load_jax():
    code = (
        "import sys, diffenergy.hardware as h; h.gpu_names(); "
        "sys.exit('jax' in sys.modules or 'equinox' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
