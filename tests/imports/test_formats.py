"""Other formats: Nsight Systems and Compute, Chakra, ONNX; what decides the kind."""

import gzip
from pathlib import Path

import pytest
from json_keys import check

from diffenergy import imports, measurements
from tests.imports import builders


def test_reports_of_nsys(tmp_path):
    """An export, and a summary."""
    result = imports.read(builders.nsys(tmp_path))
    summary = result.summary
    assert (summary["kind"], summary["gpu"]) == ("nsys", "h100-sxm")
    assert [summary[x] for x in ("kernels", "sum_us", "busy_us")] == [2, 12.0, 12.0]
    gemm, add = result.listings[0].kernels
    assert (gemm["op"], gemm["class"], gemm["traced_us"]) == ("traced", "gemm", 10.0)
    assert (add["elements"], add["how"]) == (32 * 512, "launch")
    path = tmp_path / "sum.csv"
    path.write_text(builders.SUMS)
    summary = imports.read(str(path)).summary
    assert [summary[x] for x in ("kernels", "sum_us", "busy_us")] == [4, 24.0, None]
    assert summary["classes"] == {"gemm": 20.0, "elementwise": 4.0}


def test_counters_of_ncu_are_activities(tmp_path):
    """They are measurements."""
    path, out = tmp_path / "ncu.csv", tmp_path / "rows.csv"
    path.write_text(builders.COUNTERS)
    result = imports.read(str(path), gpu="h100-sxm")
    assert result.summary["sum_us"] == 1015.5
    assert any("base clocks" in note for note in result.notes)
    [activity] = result.activities
    assert activity == {
        "op": "activity", "gpu": "h100-sxm", "time_us": 1010.5, "time_ref_us": 1010.5,
        "sm_clock_ref_mhz": 1500.0, "dram_active": 0.4, "kernel": builders.GEMM,
    }  # fmt: skip
    out.write_text(result.activity_csv())
    table = measurements.read(str(out))
    assert table.num_rows == 1 and table.time_s[0] == pytest.approx(1010.5e-6)


@pytest.mark.parametrize("packed", [False, True])
def test_a_chakra_trace(tmp_path, packed):
    path = Path(builders.chakra(tmp_path))
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    result = imports.read(str(path))
    assert (result.summary["kind"], result.summary["sum_us"]) == ("chakra", 63.0)
    gemm, collective, conv = result.listings[0].kernels
    assert (gemm["m"], gemm["n"], gemm["k"]) == (128, 128, 64)
    assert (gemm["dtype"], gemm["layout"]) == ("fp32", "tn")
    assert collective["class"] == "collective"  # nobody says how many GPUs
    assert (conv["op"], conv["stride"], conv["padding"]) == ("conv2d", 2, 1)
    assert (conv["count"], conv["traced_us"]) == (1, 33.0)
    assert "4 of the 5 GPU nodes are kernels; the other 1 " in result.notes[0]


def graph(folder: Path) -> str:
    """Conv, ReLU and what a classifier needs, over a symbolic batch."""
    onnx = pytest.importorskip("onnx")
    h, t = onnx.helper, onnx.TensorProto
    tensor = h.make_tensor_value_info
    nodes = [
        h.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        h.make_node("Relu", ["a"], ["b"]),
        h.make_node("GlobalAveragePool", ["b"], ["c"]),
        h.make_node("Flatten", ["c"], ["d"]),
        h.make_node("Gemm", ["d", "v"], ["y"], transB=1),
    ]  # fmt: skip
    inputs = [
        tensor("x", t.FLOAT16, ["batch", 64, 56, 56]),
        tensor("w", t.FLOAT16, [128, 64, 3, 3]), tensor("v", t.FLOAT16, [1000, 128]),
    ]  # fmt: skip
    network = h.make_graph(nodes, "g", inputs, [tensor("y", t.FLOAT16, None)])
    model = h.make_model(network, opset_imports=[h.make_opsetid("", 20)])
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


def test_an_onnx_graph(tmp_path):
    result = imports.read(graph(tmp_path), dims={"batch": 8})
    check("import", result.to_json())
    conv, pool, product = result.listings[0].kernels
    assert (conv["images"], conv["stride"], conv["padding"]) == (8, 2, 1)
    assert pool["fn"] == "globalaveragepool"
    assert (product["m"], product["n"], product["k"]) == (8, 1000, 128)
    assert result.summary["sum_us"] is None and not result.notes
    eager = imports.read(graph(tmp_path), dims={"batch": 8}, stack="eager")
    assert [x["op"] for x in eager.listings[0].kernels] == [
        "conv2d", "elementwise", "elementwise", "gemm",
    ]  # fmt: skip
    [note] = imports.read(graph(tmp_path)).notes
    assert note == "symbolic dimensions taken as 1: batch"
    with pytest.raises(ValueError, match="`dim` names 'bathc'.*batch"):
        imports.read(graph(tmp_path), dims={"bathc": 8})


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "name, gflop",
    [("resnet50", 8.1784), ("squeezenet", 0.6983), ("shufflenet", 0.2493)],
)
def test_published_graphs(name, gflop):
    pytest.importorskip("onnx")
    [listing] = imports.import_listing(builders.shared(f"onnx/light_{name}.onnx"))
    assert builders.gflop(listing.kernels) == pytest.approx(gflop, abs=5e-5)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", [".sqlite", "_cuda_gpu_kern_sum.csv"])
def test_published_reports(name):
    summary = imports.read(builders.shared(f"made/h100_vit-base{name}")).summary
    assert summary["kernels"] == 154
    assert summary["sum_us"] == pytest.approx(1220.926, abs=1e-3)


@pytest.mark.shared_data
def test_a_published_chakra_trace():
    """A training step of ResNet-50, batch 32: 24.29 GFLOP an image in convolutions
    (3 x 8.174 - 0.236: the images need no gradient)."""
    result = imports.read(builders.shared("chakra/chakra.0.et.gz"))
    summary = result.summary
    assert "896 of the 1,216 GPU nodes are kernels" in summary["notes"][0]
    convolutions = [
        dict(x, op="conv2d")
        for x in result.listings[0].kernels
        if x["op"].startswith("conv2d")
    ]
    assert builders.gflop(convolutions) / 32 == pytest.approx(24.29, abs=0.01)
    assert summary["sum_us"] + summary["classes"]["copy"] == pytest.approx(329_543)
    assert summary["class_share"] > 0.99
