"""What a listing leaves out has its default, whatever is asked of it."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import diffenergy as de
from diffenergy import kernels
from diffenergy.codesign import Effort, search
from diffenergy.dvfs import plan
from diffenergy.estimator import estimate_details, prepare
from diffenergy.kernels import COMMON_FIELDS, REQUIRED
from diffenergy.report import estimate_page
from diffenergy.workload import Listing, read_listings

GPU: Final = "rtx-3080-ti"
KERNELS: Final = [
    {"op": "gemm", "m": 64, "n": 256, "k": 128, "dtype": "bf16", "count": 4},
    {"op": "elementwise", "fn": "gelu", "elements": 4096, "dtype": "bf16", "count": 2},
]
FIELDS: Final = dict(
    name="x", model="m", config="c", precision="bf16", batch=4, seq_len=16,
    module_calls=10, passes=2, dispatch="eager", training=True, age=1, notes=["n"],
)  # fmt: skip
"""Every field of a workload but its mode and kernels."""
NEEDED: Final = {"clblast_gemm": ("tile_m", "tile_n")}
"""Common fields that an op refuses to do without."""
PARTS: Final = (("prefill", "decode"), ("forward", "backward", "optimizer"))
MODES: Final = ("prefill", "decode", "generate", "forward", "train", "mine")
Lines = list[dict[str, Any]]


def left_out() -> Iterator[tuple[str, dict[str, Any]]]:
    """All fields, none, each left out alone and each said alone."""
    yield "all", FIELDS
    yield "none", {}
    yield "a batch and a length alone", {"batch": 4, "seq_len": 16}
    for name in FIELDS:
        yield f"without {name}", {key: x for key, x in FIELDS.items() if key != name}
        yield f"{name} alone", {name: FIELDS[name]}


def workloads(modes: tuple[str, ...] = MODES) -> Iterator[tuple[str, Lines]]:
    """Listings of one workload, by mode, and of the parts of one, with and without
    their modes."""
    for label, fields in left_out():
        yield f"no mode, {label}", [{**fields, "kernels": KERNELS}]
        for mode in modes:
            yield f"{mode}, {label}", [{**fields, "mode": mode, "kernels": KERNELS}]
        for parts in PARTS:
            lines = [{**fields, "name": f"x/{x}", "kernels": KERNELS} for x in parts]
            yield f"{parts}, {label}, no mode", lines
            moded = zip(lines, parts, strict=True)
            yield f"{parts}, {label}", [{**line, "mode": x} for line, x in moded]


def estimate(path: str):
    result = de.estimate(path, GPU)
    assert result.energy > 0
    repr(result)


def clocks(path: str):
    result = plan(path, GPU, sm_clock=[9e8, 1.5e9], power_curve=True)
    assert 0 < result.bound <= result.energy
    assert repr(result) and result.to_csv() and result.to_script()


def designs(path: str):
    repr(search(path, GPU, vary={"sm_clock": None}, effort=Effort(1, 1)))


def report(path: str):
    task = prepare(path, GPU)
    assert estimate_page([estimate_details(task, task.run())], "")


@pytest.fixture
def file(write) -> Callable[[Lines], str]:
    def file(lines: Lines) -> str:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        return str(write(text, "listing.jsonl"))

    return file


def test_every_field_of_a_workload_is_left_out(file):
    """Each field of the record is in `FIELDS`, and no request needs one."""
    assert {*FIELDS, "mode", "kernels"} == set(Listing.__dataclass_fields__)
    for _, lines in workloads():
        prepare(file(lines), GPU)


def test_one_line_of_a_training_step_counts_its_micro_batches(file):
    """As the published listing of GPT-3 says it: tokens are batch x length x passes."""
    line = {"mode": "train", "batch": 4, "seq_len": 16, "kernels": KERNELS}
    for passes, tokens in ((None, 64), (3, 192)):
        summary = de.estimate(file([{**line, "passes": passes}]), GPU).summary
        assert summary["accumulation"] == (passes or 1)
        assert summary["tokens_per_s"] * summary["time_s"] == pytest.approx(tokens)


def test_parts_are_phases_by_their_names(file):
    parts = PARTS[1]
    lines = [{"name": f"x/{x}", "batch": 1, "kernels": KERNELS} for x in parts]
    assert [*de.estimate(file(lines), GPU).summary["phases"]] == [*parts]


@pytest.mark.slow
@pytest.mark.parametrize("command", [estimate, clocks, designs, report])
def test_whatever_a_workload_leaves_out_is_answered(file, command):
    few = (" none", " all", " length alone", "out batch", "out seq_len", "out passes")
    few = few[:1] if command is designs else few  # each is a search
    for label, lines in workloads(("train", "generate")):
        case = label.removesuffix(", no mode")
        if command is not estimate and not case.endswith(few):
            continue
        try:
            command(file(lines))
        except Exception as error:
            raise AssertionError(f"{command.__name__}, {label}") from error


# --- kernels


def optional(op: str) -> list[str]:
    """Fields that a row may leave out."""
    fields = (*kernels.ops()[op][0].fields, *COMMON_FIELDS)
    names = [field.name for field in fields if field.default is not REQUIRED]
    return [x for x in names if x not in NEEDED.get(op, ())]


def test_a_kernel_that_leaves_a_field_out_has_its_default(file, sample):
    """The row is the same with the default written out, of every field of every op."""
    for op in kernels.ops():
        row = sample(op)
        for name in optional(op):
            less = {key: x for key, x in row.items() if key != name}
            (full,) = read_listings(file([{"kernels": [less]}]))[0].kernels
            (again,) = read_listings(file([{"kernels": [full]}]))[0].kernels
            lines = [{"kernels": [less | {name: None}]}]
            (null,) = read_listings(file(lines))[0].kernels
            assert full == again == null, (op, name)


@pytest.mark.slow
@pytest.mark.parametrize("command", [estimate, clocks, report])
def test_whatever_kernels_leave_out_is_answered(file, sample, command):
    """All ops at once, so that one program serves: each without its first optional
    field, then without its second, ..., then without all."""
    rows = {op: sample(op) for op in kernels.ops()}
    most = max(len(optional(op)) for op in rows)
    each = range(most) if command is estimate else ()
    for number in (*each, None):
        left = []
        for op, row in rows.items():
            names = optional(op)
            names = names if number is None else names[number : number + 1]
            left.append({key: x for key, x in row.items() if key not in names})
        command(file([{"mode": "forward", "kernels": left}]))
