"""What GPU files, changed GPUs and operating points refuse."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import File, Refusal, row

import diffenergy as de
from diffenergy import codesign
from diffenergy.hardware import (
    GpuCard,
    OperatingPoint,
    gpu_toml,
    load_gpu,
    read_gpu,
    with_fields,
)
from diffenergy.units import GHz

H100, V5E = read_gpu("h100-sxm"), read_gpu("tpu-v5e")
TEXT = gpu_toml(H100)


def file(sentence: str, pattern: str, replacement: str) -> Any:
    """An H100 file with one edit; `pattern` is anchored to line starts."""
    text, edits = re.subn(rf"(?m)^{pattern}", replacement, TEXT, count=1)
    assert edits == 1, pattern
    return row(sentence, read_gpu, File(text, "mine.toml"))


def provenance(sentence: str, entry: str) -> Any:
    return file(sentence, r"num_sms = \{.*", f"num_sms = {{ {entry} }}")


def chip(sentence: str, card: GpuCard, **numbers: float) -> Any:
    """A file of a chip with other numbers, and no published peaks."""
    values = {**card.values, **numbers}
    changed = dataclasses.replace(card, values=values, published={}, aliases=())
    return row(sentence, read_gpu, File(gpu_toml(changed), "mine.toml"))


KEYS = [
    file("`num_sms` is missing; add it (count", r"num_sms = .*\n", ""),
    file("`memory` is missing; add it as text in quotes", r"memory = .*\n", ""),
    file("`num_sm` is not a key .. `num_sms`", r"num_sms = ", "num_sm = "),
    file("`num_sms` is '132'; give a number", r"num_sms = 132", "num_sms = '132'"),
    file("`num_sms` is nan; give a finite", r"num_sms = 132", "num_sms = nan"),
    file("`num_sms` is 0; allowed .. above zero", r"num_sms = 132", "num_sms = 0"),
    file("is not valid TOML", r"num_sms = 132", "num_sms = = 132"),
    file("`tdp` is 1000 .. ; give a finite", r"tdp = 700", f"tdp = 1{'0' * 400}"),
    file("`tdp` is -700; allowed is any number above zero", r"tdp = 700",
           "tdp = -700"),
    file("`vf_slope` .. zero or above", r"vf_slope = .*", "vf_slope = -1e-10"),
    file("looks like MHz; .. in Hz", r"sm_clock_max = .*", "sm_clock_max = 1980"),
    file("`mem_clocks` .. looks like MHz", r"mem_clocks = .*", "mem_clocks = [2619]"),
    file("looks like GB/s; .. B/s", r"dram_bandwidth = .*", "dram_bandwidth = 3350"),
    file("`dram_bandwidth` is 1e+30; allowed are 1e+10 to 1e+17 (B/s).",
         r"dram_bandwidth = .*", "dram_bandwidth = 1e30"),
    file("looks like MiB; .. in B", r"l2_capacity = .*", "l2_capacity = 50"),
    file("looks like V/GHz; .. in V/Hz", r"vf_slope = .*", "vf_slope = 0.4"),
    file("`sm_clock_min` is 2e+09, above", r"sm_clock_min = .*",
           "sm_clock_min = 2e9"),
    file("`power_limit_min` is 900", r"power_limit_min = .*",
           "power_limit_min = 900"),
    file("is 2; allowed are", r"sm_clock_app.* = 1", "sm_clock_applied_share = 2"),
    file("`fp32_doubled` is 2; allowed are", r"fp32_doubled = .*",
           "fp32_doubled = 2"),
    file("`num_sms` is 132.5; give a whole number", r"num_sms = 132",
           "num_sms = 132.5"),
    file("`warp_size` is 7; allowed are 8 to 256", r"warp_size = 32", "warp_size = 7"),
    file("`thermal_resistance` is 35; .. (K/W)", r"thermal_resistance = [0-9.e-]*",
           "thermal_resistance = 35"),
    file("at least -273.15", r"ambient_temp.* = 35", "ambient_temperature = -300"),
    file("`vf_curvature` .. falls", r"vf_curvature = .*", "vf_curvature = -9e-19"),
    file("`mma` is 'mfma'; allowed are mma.sync, wgmma", r"mma = .*", 'mma = "mfma"'),
    file("write Hopper if that is", r"architecture = .*", 'architecture = "hopper"'),
    file("`memory` is 'HBM-3E'; write HBM3e if", r"memory = .*", 'memory = "HBM-3E"'),
    file("`memory` is 3; give text in quotes", r"memory = .*", "memory = 3"),
    file("`memory` is .. ; known are GDDR5", r"memory = .*",
           'memory = "HBM3/GDDR6"'),
    file("'Q7'; known are 28nm, .. A16;", r"process_node = .*",
           'process_node = "Q7"'),
    file("; write the nearest", r"process_node = .*", 'process_node = "7nm/6nm/5nm"'),
    file("`segment` is 'edge'; allowed are data", r"segment = .*",
           'segment = "edge"'),
    file("`corrections` .. `h100-sxm`", r"corrections = .*", 'corrections = "h100"'),
    file("`aliases` is 'x'; give a list", r"aliases = .*", 'aliases = "x"'),
    file("`aliases` is 1; give text", r"aliases = .*", "aliases = [1]"),
    file("`num_sms` is missing", r"num_sms(?s:.*)", "published = 3"),
    file("`physical` is .. ; give a table", r"\[physical\]", "[[physical]]"),
    file("`num_sms` in `[provenance]` is 3; give", r"num_sms = \{.*", "num_sms = 3"),
    file("`num_sm` in `[provenance]` is not a key", r"num_sms = \{.*",
           "num_sm = {}"),
    provenance("`num_sms` in .. has no `source`; add", ""),
    provenance("has no `quality`; add one of datasheet", "source = 'x', year = 2024"),
    provenance("has no `year`; add a year", "source = 'x', quality = 'guess'"),
    provenance("`source` of `num_sms` .. is ''; give text in quotes", "source = ''"),
    provenance("`quality` .. is 'good'; give one", "source = 'x', quality = 'good'"),
    provenance("`year` of `num_sms` in .. is 24; give a year",
            "source = 'x', quality = 'guess', year = 24"),
    provenance("has `page`; allowed are source, quality, year",
            "source = 'x', quality = 'guess', year = 2024, page = 3"),
]  # fmt: skip
IMPOSSIBLE = [  # of an H100: 132 SMs, 5 stacks of HBM3, 3.35 TB/s, 700 W
    # 1000 x 1.98e9 / 3.3523e12 = 0.59
    file("mine.toml: .. 0.59 times `dram_band",
           r"l2_bytes_per_cycle = \S+(?= )", "l2_bytes_per_cycle = 1000"),
    # 6e12 / 5 = 1,200 GB/s of 819
    file("mine.toml: .. 1200 GB/s for each of 5 st",
           "dram_bandwidth = 3.3523e12", "dram_bandwidth = 6e12"),
    # 200e9 / 5 = 37.25 GiB of 24
    file("mine.toml: .. 37.25 GiB for each of 5 stacks",
           r"dram_capacity = 8.5\S+", "dram_capacity = 200e9"),
    file("mine.toml: .. `tdp` is 7000, .. none draws it",
         "tdp = 700((?s:.*?)power_limit_max = )700", r"tdp = 7000\g<1>7000"),
    # the chip's rate, not an SM's: 132 x 4096
    file("mine.toml: .. at most 32768: give the rate of one SM",
           "tensor_flop_per_cycle_bf16 = 4096", "tensor_flop_per_cycle_bf16 = 540672"),
    # 160 SMs x 4096 x 1.83e9 / 989e12 = 1.21
    file("mine.toml: .. 1.2 .. times the published", "num_sms = 132",
           "num_sms = 160"),
    file("mine.toml: .. two stages of 64x64 tiles", "smem_per_sm = 233472",
           "smem_per_sm = 8192"),
    # the rate of a v5e's core is no SM's, and that of a whole pod is no core's
    chip('describe arrays as `mma = "systolic"`',
              dataclasses.replace(V5E, mma="mma.sync")),
    chip("at most 2097152: give the rate of one core", V5E,
              tensor_flop_per_cycle_bf16=256 * 131072.0),
]  # fmt: skip
NAMES = [
    row("a folder", read_gpu, File(None, "folder.toml")),
    row("no such file", read_gpu, "none.toml"),
    row("not UTF-8", read_gpu, File(b"name = '\xff\xfe'", "binary.toml")),
    *(row(f"`gpu` is '{name}', .. not a known GPU .. `{near}", read_gpu,
     name) for name, near in {"h100-sxn": "h100-sxm", "A100-": "a100-pcie-40gb",
     "rtx 4080": "rtx-4090", "": "t4", "h10": "", "rtx": "", "100": ""}.items()),
    row("`gpu` is 'a100', a family of boards", read_gpu, "a100", exact=True),
]  # fmt: skip
CHANGES = [
    row(sentence, with_fields, H100, change)
    for change, sentence in (
        ({"dram_bandwith": 6e12}, "`dram_bandwith` .. `dram_bandwidth`"),
        ({"mma_kind": 1.0}, "No numeric field of a GPU is called `mma_kind`"),
        ({"zzz": 1.0}, "No numeric field of a GPU is called `zzz` .. gpus show"),
        ({"segment": "geforce"}, "No numeric field of a GPU is called `segment`"),
        ({"tdp": -1.0}, "`tdp` is -1; allowed"),
        ({"tdp": 70.0}, "`power_limit_min` is 200, above `tdp` 70"),
        ({"tdp": 1000.0}, "`tdp` is 1000, above `power_limit_max` 700"),
        ({"sm_clock_max": 1e8}, "`sm_clock_min` .. above `sm_clock_max`"),
        ({"process_node": 7}, "`process_node` is 7; give a word"),
        ({"memory": "HBM5"}, "`memory` is 'HBM5'; known are GDDR5, "),
    )
]
SPECS = [
    row(sentence, lambda x: dataclasses.replace(H100.spec, **x), change)
    for change, sentence in (
        ({"dram_bandwidth": 3350.0}, "`dram_bandwidth` is 3350, .. GB/s"),
    )
]
POINT = {"sm_clock": [1.5 * GHz] * 2, "mem_clock": [2619e6] * 2}
POINTS: list[tuple[dict[str, Any], str]] = [
    ({"sm_clock": 1500}, "`sm_clock` is 1500, which looks like MHz; .. 1.5e+09"),
    ({"sm_clock": 1e6}, "is 1e+06, which looks like kHz; give it in Hz (1e+09"),
    ({"sm_clock": 1.41}, "is 1.41, which looks like GHz; give it in Hz (1.41e+09"),
    ({"mem_clock": [2619e6, 2619]}, "`mem_clock` is 2619, which looks like MHz"),
    ({"sm_clock": np.array([-1.0, 1e9])}, "`sm_clock` is -1; .. above zero"),
    ({"power_cap": 0}, "`power_cap` is 0; .. above zero"),
    ({"power_cap": jnp.array([300.0, 350000.0])}, "looks like mW; .. W (350"),
    ({"temperature": 333.0}, "`temperature` is 333; .. is that K"),
    ({"temperature": -300.0}, "`temperature` is -300"),
]


def point(fields: dict[str, Any]):
    OperatingPoint(**(POINT | {"power_cap": [300.0] * 2} | fields))


def traced(fields: dict[str, Any]):
    """A constant in a traced function."""
    jax.jit(lambda x: OperatingPoint(**(POINT | {"power_cap": x} | fields)))(300.0)


OPERATION = [
    *(row(sentence, point, fields) for fields, sentence in POINTS),
    *(row(sentence, traced, fields) for fields, sentence in POINTS[:1] + POINTS[-2:]),
]
TILED = {"op": "gemm", "m": 512, "n": 512, "k": 512, "dtype": "fp32", "tile_m": 64}
TILED |= {"tile_n": 64}
ARRAYS = [
    row("4 GPUs, whose network is not known", de.estimate,
        "llama-3.1-70b", gpu="tpu-v5p", tp=8, phase="decode"),
    row("`tile_m` is 64, of a tile on CUDA cores", de.estimate,
        File(json.dumps({"name": "x", "kernels": [TILED]}), "tiled.jsonl"), "tpu-v5e"),
    row("`gpu` is tpu-v5e, whose systolic arrays", codesign.tune,
        "gpt2", "tpu-v5e", phase="decode"),
    row("`gpu` is tpu-v5e, whose systolic arrays", codesign.search,
        "gpt2", "tpu-v5e", phase="decode", vary=("tiles",)),
]  # fmt: skip


@pytest.mark.parametrize(
    "refusal",
    KEYS + IMPOSSIBLE + NAMES + CHANGES + SPECS + OPERATION + ARRAYS,
)
def test_refused(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)


def test_a_tracer_is_not_refused():
    scaled = jax.grad(lambda x: dataclasses.replace(load_gpu("t4"), tdp=x).tdp)
    assert scaled(-1.0) == 1
