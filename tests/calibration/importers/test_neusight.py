"""NeuSight's tables: tiles in cuBLAS's order, shapes of vectors."""

from collections.abc import Callable

import numpy as np
import pytest

from calibration.importers import neusight
from calibration.splits.base import as_table
from diffenergy.measurements import MeasurementTable
from diffenergy.measurements.importers import notes_of

NEUSIGHT = (
    "gpu,op,dtype,batch,m,n,k,time_us,kernel,tile_m,tile_n,grid_x,grid_y,grid_z,"
    "block_x,torch,split_in_source\n"
    "Tesla T4,linear,float32,1,74,300,454,33.9,volta_sgemm_128x32_nn,128,32,3,3,2,"
    "256,2.1.0,train\n"
    "Tesla T4,bmm,float32,5,74,300,454,33.9,volta_sgemm_128x32_nn,128,32,3,3,5,"
    "256,2.1.0,train\n"
)


@pytest.fixture
def table(write) -> Callable[[str], tuple[MeasurementTable, list[str]]]:
    """`table(text)`: a file as measurements, and what was changed."""

    def table(text: str) -> tuple[MeasurementTable, list[str]]:
        result = neusight.translated(write(text, "neusight.csv"))
        return as_table(result), notes_of(result)

    return table


def test_cublas_tiles_are_column_major(table):
    """Hand arithmetic: n = 300 with the printed 128 along it are 3 tiles, as grid_x."""
    table, notes = table(NEUSIGHT)
    shape = table.fields["gemm"].values
    np.testing.assert_array_equal(shape["tile_m"], [32, 32])
    np.testing.assert_array_equal(shape["tile_n"], [128, 128])
    np.testing.assert_array_equal(shape["split_k"], [2, 0])
    np.testing.assert_array_equal(shape["threads"], [256, 256])
    np.testing.assert_array_equal(shape["slices"], [1, 1])
    assert list(shape["layout"]) == ["tn", "nn"]
    assert list(shape["weights"]) == ["b", "none"]
    assert list(shape["family"]) == ["linear", "bmm"]
    assert list(table.campaign) == ["neusight", "neusight"]
    assert "column-major" in notes[0]


def test_a_grid_that_says_so_keeps_the_order_of_a_tile(table):
    """Hand arithmetic: 3 x 10 tiles of 128 x 32 along m and n; swapped 12 x 3 = 36."""
    row = (
        "NVIDIA H100 80GB HBM3,bmm,float32,1,300,300,454,33.9,a_sliced1x4_nn,128,32,"
        "10,3,1,256,2.1.0,train\n"
    )
    swapped = row.replace(",300,300,454", ",384,320,454")  # 3 x 10, swapped 12 x 3
    header = NEUSIGHT.partition("\n")[0] + "\n"
    table, _ = table(header + row + swapped)
    shape = table.fields["gemm"].values
    np.testing.assert_array_equal(shape["tile_m"], [32, 128])
    np.testing.assert_array_equal(shape["tile_n"], [128, 32])
    np.testing.assert_array_equal(shape["slices"], [4, 4])


def test_vector_tables_have_batch_and_h_and_say_what_they_read(table):
    text = "gpu,op,dtype,batch,h,time_us\n" + "".join(
        f"Tesla T4,{op},float32,3,100,30\n"
        for op in ("add", "pow", "addu", "gelu", "ln")
    )
    table, _ = table(text)
    columns = table.fields["elementwise"].values
    assert columns["elements"].tolist() == [300] * 4
    assert columns["fn"][2] == "addu"
    np.testing.assert_array_equal(columns["reads"], [2, 2, 1, 1])
    assert list(columns["family"]) == ["add", "pow", "addu", "gelu"]
    norm = table.fields["layernorm"].values
    assert (norm["rows"][0], norm["cols"][0]) == (3, 100)
    assert set(table.campaign) == {"neusight"}
