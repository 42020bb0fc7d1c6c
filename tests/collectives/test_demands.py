"""Demands of every collective, sizes, tenants, files; against their definitions."""

from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import Demand, demand, load_topology
from diffenergy.collectives._demands import collective_name, read_matrix_file, together

from .builders import COLLECTIVES, read_demand_file

DGX1 = load_topology("dgx1")
PUBLISHED = load_topology("ndv2-2-published")
SHARES = {
    "all_gather": 14, "all_to_all": 14, "reduce_scatter": 1, "all_reduce": 15,
    "broadcast": 16, "scatter": 1, "reduce": 16, "gather": 14,
}  # fmt: skip
"""Blocks into a GPU of `PUBLISHED` that wants any: 15 share a buffer of 16."""


def wishes(demand: Demand) -> set[tuple[int, int, int]]:
    """(source, chunk, node that wants it)."""
    blocks, nodes = np.nonzero(demand.wanted)
    named = zip(demand.source[blocks], demand.chunk[blocks], nodes, strict=True)
    return {(int(s), int(c), int(n)) for s, c, n in named}


def test_spellings():
    names = {
        "all-gather": "all_gather",
        "AllGather": "all_gather",
        "ALL_TO_ALL": "all_to_all",
        "AlltoAllv": "all_to_all",
        "bcast": "broadcast",
    } | dict(zip(COLLECTIVES, COLLECTIVES, strict=True))
    assert {text: collective_name(text) for text in names} == names


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("chunks", [1, 3])
def test_blocks_are_named_once_and_add_up(name: str, chunks: int):
    """gpu0 is a relay, which takes no part; the third GPU is gpu3."""
    result = demand(name, PUBLISHED, 48e3, chunks, root=2)
    names = set(zip(result.source.tolist(), result.chunk.tolist(), strict=True))
    assert len(names) == len(result.source)
    np.testing.assert_allclose(result.size, 3e3 / chunks)
    gpus = np.arange(16)
    share = np.where(gpus > 0, 3e3 * SHARES[name], 0)
    if name in ("broadcast", "scatter"):
        share[3] = 0
    elif name in ("reduce", "gather"):
        share[gpus != 3] = 0
    into = (result.wanted * result.size[:, None]).sum(0)
    np.testing.assert_allclose(into, share)
    assert not result.parts[:, 0].any() and 0 not in result.source


def test_sums_have_a_part_from_everyone():
    for name in ("reduce_scatter", "all_reduce", "reduce"):
        result = demand(name, DGX1, "8KB")
        assert result.reduces and result.parts.all()
        assert result.wanted[np.arange(8), result.source].all()
        assert result.wanted.all() == (name == "all_reduce")
    assert not demand("all_gather", DGX1, "8KB").reduces


def test_numbers_of_chunks_and_roots():
    """All-to-all numbers part and destination."""
    pairs = {(s, d) for s in range(8) for d in range(8) if s != d}
    result = demand("all_to_all", DGX1, "1GB", chunks=2)
    assert wishes(result) == {(s, p * 8 + d, d) for s, d in pairs for p in range(2)}
    assert wishes(demand("scatter", DGX1, "1GB", 2, root="gpu5")) == {
        (5, p * 8 + d, d) for p in range(2) for d in range(8) if d != 5
    }
    assert set(demand("broadcast", DGX1, "8KB").source.tolist()) == {0}
    assert set(demand("broadcast", DGX1, "8KB", root="GPU3").source.tolist()) == {3}
    assert set(demand("reduce", PUBLISHED, "16KB", root=0).source.tolist()) == {1}


def test_uneven_all_to_all():
    matrix = np.zeros((8, 8))
    matrix[0, 3], matrix[5, 1], matrix[2, 2] = 300.0, 20.0, 7.0
    result = demand("alltoall", DGX1, chunks=2, matrix=matrix)
    assert wishes(result) == {(0, 3, 3), (0, 11, 3), (5, 1, 1), (5, 9, 1)}
    by_source = np.bincount(result.source, result.size)
    np.testing.assert_allclose(by_source[[0, 5]], [300.0, 20.0])


def test_tenants_at_once():
    result = demand("all_gather", DGX1, "1KB", groups=[[0, 1, 2, 3], ["gpu6", 7]])
    expected = {(s, 0, d) for s in range(4) for d in range(4) if s != d}
    assert wishes(result) == expected | {(6, 0, 7), (7, 0, 6)}
    np.testing.assert_allclose(result.size, [250.0] * 4 + [500.0] * 2)
    pairs = demand("all_to_all", DGX1, "1KB", groups=[[4, 6]])
    assert wishes(pairs) == {(4, 1, 6), (6, 0, 4)}


def test_together_renumbers_chunks_that_clash():
    gather = demand("all_gather", DGX1, "8KB")
    both = together([gather, demand("broadcast", DGX1, "8KB", root=3)])
    assert both.collective == "custom" and len(both.source) == 16
    named = list(zip(both.source.tolist(), both.chunk.tolist(), strict=True))
    assert len(set(named)) == 16
    assert [c for s, c in named if s == 3] == list(range(9))
    assert together([gather, gather]).collective == "all_gather"


def test_files(tmp_path: Path):
    path = tmp_path / "demand.csv"
    path.write_text("0,1e3, 2\n\n4,0,5\n6,7,0\n")
    read = read_matrix_file(str(path))
    np.testing.assert_array_equal(read, [[0, 1000, 2], [4, 0, 5], [6, 7, 0]])
    result = demand("all_to_all", load_topology("ring-3"), matrix=read)
    assert result.size.sum() == 1024 and len(result.source) == 6
    path.write_text(
        "source,chunk,bytes,wanted\ngpu0,0,1000,gpu1 3\n2,5,25,all\n0,1,8,4"
    )
    result = read_demand_file(str(path), DGX1)
    assert wishes(result) == {(0, 0, 1), (0, 0, 3), (0, 1, 4)} | {
        (2, 5, d) for d in range(8) if d != 2
    }
    assert result.size.tolist() == [1000.0, 25.0, 8.0] and not result.reduces


def test_one_way_links_disconnect_one_way(tmp_path: Path):
    """What `test_refusals` refuses the other way round."""
    path = tmp_path / "one.toml"
    path.write_text(
        'gpus = 3\n[[links]]\none_way = "0->1 1->2"\nrate = 1e9\nmedium = "serial"\n'
    )
    chain = load_topology(str(path))
    assert len(demand("broadcast", chain, "3KB").source) == 3
    assert demand("reduce", chain, "3KB", root=2).reduces


@pytest.mark.shared_data
def test_chunks_of_the_published_runs(shared: Path):
    import pandas as pd

    rows = pd.read_csv(shared / "data" / "teccl" / "goldens_ndv2_2chassis.csv")
    for row in rows.to_dict("records"):
        result = demand(str(row["collective"]), PUBLISHED, str(row["size_label"]))
        np.testing.assert_allclose(result.size, row["chunk_bytes"])
        assert result.wanted.sum() == row["n_demands"]
