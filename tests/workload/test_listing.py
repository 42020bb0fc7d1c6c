import json
import re

import pytest

from diffenergy import kernels
from diffenergy.kernels import Field, Op
from diffenergy.workload import (
    kernel_name,
    listing_lines,
    listings_by_name,
    merge_kernels,
    normalise_kernel,
    read_listings,
    select_listing,
)
from diffenergy.workload.models import load_model

GEMM = dict(op="gemm", m=64, n=32, k=16, dtype="bf16")


def write(folder, *workloads):
    path = folder / "work.jsonl"
    path.write_text("".join(json.dumps(w) + "\n" for w in workloads))
    return path


def workload(name="one", **kernel):
    return dict(name=name, kernels=[{**GEMM, **kernel}])


@pytest.mark.parametrize(
    "raw, expected",
    [
        (GEMM | dict(batch=8), dict(weights="none")),
        (GEMM | dict(dtype="float32"), dict(dtype="fp32", tensor_core=False)),
        (GEMM | dict(dtype="half", m=64.0), dict(dtype="fp16", m=64)),
        (GEMM | dict(kernel_source="cublas", gemm_m=9), dict(family="cublas")),
    ],
)
def test_defaults_are_filled_and_synonyms_resolved(raw, expected):
    kernel = normalise_kernel(raw, "here")
    assert {key: kernel[key] for key in expected} == expected


def test_written_listings_are_read_back_identically(tmp_path):
    rows = [
        GEMM | dict(listed=False, layout="tn", tile_m=128),
        dict(op="elementwise", fn="swizzle", elements=9, dtype="bf16"),
    ]
    extra = dict(module_calls=7, passes=3, dispatch="graph", batch=2, seq_len=None)
    first = read_listings(write(tmp_path, dict(name="x", kernels=rows, **extra)))
    assert "swizzle" in first[0].notes[0] and first[0].passes == 3
    again = tmp_path / "again.jsonl"
    again.write_text(listing_lines(first))
    assert read_listings(again) == first


def test_workloads_are_selected_by_name(tmp_path):
    """The two listings of a generation are one workload."""
    names = ["llama/prefill", "llama/decode", "bert"]
    path = write(tmp_path, *map(workload, names))
    listings = read_listings(path)
    for some, name, chosen in (
        (listings, "bert", names[2:]), (listings, "llama", names[:2]),
        (listings[:2], None, names[:2]), (listings[2:], None, names[2:]),
    ):  # fmt: skip
        assert [x.name for x in select_listing(some, name)] == chosen
    result = listings_by_name([str(path)])
    assert {k: [x.name for x in v] for k, v in result.items()} == {
        **{name: [name] for name in names}, "llama": names[:2],
    }  # fmt: skip
    with pytest.raises(ValueError, match="once"):
        listings_by_name([str(path), str(path)])


def test_other_launches_push_weights_out(sample, phases):
    """Between two uses of a weight lie all bytes of a pass, of every launch."""
    gemm = sample("gemm", m=8)
    size = 2 * (640 * 640 + 2 * 8 * 640)
    for count in (1, 3):
        (shape,) = phases([gemm | {"count": count}]).shapes
        assert shape.b_distance[0] == count * size


def test_equal_rows_are_merged_in_order():
    one = normalise_kernel(GEMM | dict(count=2), "here")
    other = normalise_kernel(GEMM | dict(m=8), "here")
    assert merge_kernels([one, other, one]) == ({**one, "count": 4}, other)


def test_what_tables_call_a_kernel(sample):
    for op, fields, name in (
        ("gemm", dict(batch=2, m=8, n=16, k=32), "gemm 2x8x16x32 bf16"),
        ("elementwise", dict(fn="gelu", elements=1e6), "gelu 1e+06 bf16"),
        ("activity", {}, "activity"),
    ):
        assert kernel_name(sample(op, **fields)) == name


def test_a_class_says_itself_what_its_fields_allow(monkeypatch):
    """An op that no other file knows: its words, sizes that divide, what cannot be, and
    what tables call it."""
    fields = (
        Field("kind", "text", choices=("even", "power_X")), Field("heads"),
        Field("groups", default=1.0, divides=("heads",)), Field("dtype", "dtype"),
    )  # fmt: skip
    wrong = lambda row: "one head is too few" if row["heads"] == 1 else ""  # noqa: E731
    op = Op("sweep", fields, wrong=wrong)
    ops = {**kernels.ops(), "sweep": (op, kernels)}
    monkeypatch.setattr(kernels, "ops", lambda: ops)
    row = dict(op="sweep", kind="power_1.5", heads=8, groups=4, dtype="bf16")
    assert kernel_name(normalise_kernel(row, "here")) == "sweep 8 bf16"
    for change, words in (
        ({"kind": "odd"}, '`kind` is "odd"; allowed: even, power_X.'),
        ({"kind": "power_X"}, '`kind` is "power_X"; allowed'),
        ({"kind": "power_1.5 "}, "`kind` is"),
        ({"kind": 3}, "`kind` is 3; allowed"),
        ({"groups": 3}, "`heads` is 8, which `groups` 3 does not divide"),
        ({"heads": 1, "groups": 1}, "here: one head is too few."),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            normalise_kernel(row | change, "here")


@pytest.mark.parametrize(
    "name, published",
    [
        ("llama-3.1-8b", "8.030 G parameters, 16.06 GB in bf16"),
        ("resnet-50", "25.56 M parameters"),
    ],
)
def test_what_a_notebook_shows_fits_ten_lines(name, published):
    """Of a model, its listings and its workload, with units."""
    model = load_model(name)
    listings = model.listings()
    count = sum(row["count"] for row in listings[-1].kernels)
    shown = [repr(model), repr(model.workload()), *map(repr, listings)]
    lines = [text.splitlines() for text in shown]
    assert max(map(len, lines)) <= 10 and max(map(len, sum(lines, []))) <= 100
    assert published in shown[0] and f"{count:,.6g} launches" in shown[-1]
