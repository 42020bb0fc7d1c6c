"""Demands of every collective, sizes, tenants, files; against their definitions."""

from pathlib import Path

import numpy as np
import pytest

from diffenergy.collectives import Demand, Topology, demand, load_topology
from diffenergy.collectives._demands import collective_name, read_matrix_file, together

from .builders import COLLECTIVES, read_demand_file

DGX1 = load_topology("dgx1")
PUBLISHED = load_topology("ndv2-2-published")


def wishes(demand: Demand) -> set[tuple[int, int, int]]:
    """(source, chunk, node that wants it)."""
    blocks, nodes = np.nonzero(demand.wanted)
    named = zip(demand.source[blocks], demand.chunk[blocks], nodes, strict=True)
    return {(int(s), int(c), int(n)) for s, c, n in named}


@pytest.mark.parametrize(
    "options, name",
    [
        ("all-gather", "all_gather"),
        ("AllGather", "all_gather"),
        ("allgather", "all_gather"),
        ("ALL_TO_ALL", "all_to_all"),
        ("alltoall", "all_to_all"),
        ("AlltoAllv", "all_to_all"),
        ("ReduceScatter", "reduce_scatter"),
        ("bcast", "broadcast"),
        *((name, name) for name in COLLECTIVES),
    ],
)
def test_spellings(options: str, name: str):
    assert collective_name(options) == name


@pytest.mark.parametrize("name", [c for c in COLLECTIVES if c != "custom"])
@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("topology", [DGX1, PUBLISHED], ids=lambda t: t.name)
def test_blocks_are_named_once_and_add_up(name: str, chunks: int, topology: Topology):
    result = demand(name, topology, 48e3, chunks, root=2)
    gpus = topology.gpus
    names = set(zip(result.source.tolist(), result.chunk.tolist(), strict=True))
    assert len(names) == len(result.source)
    block = 48e3 / topology.buffer_gpus / chunks
    np.testing.assert_allclose(result.size, block)
    shares = {
        "all_gather": len(gpus) - 1,
        "all_to_all": len(gpus) - 1,
        "reduce_scatter": 1,  # its sum
        "all_reduce": len(gpus),
        "broadcast": topology.buffer_gpus,
    }
    into = (result.wanted * result.size[:, None]).sum(0)
    root = int(gpus[2])
    for gpu in gpus:
        share = shares.get(name, 1)
        if name in ("broadcast", "scatter"):
            share = 0 if gpu == root else share
        if name in ("reduce", "gather"):
            whole = topology.buffer_gpus if name == "reduce" else len(gpus) - 1
            share = whole if gpu == root else 0
        np.testing.assert_allclose(into[gpu], share * chunks * block)
    others = np.setdiff1d(np.arange(len(topology.nodes)), gpus)
    assert not result.wanted[:, others].any() and not result.parts[:, others].any()
    assert set(result.source.tolist()) <= set(gpus.tolist())


@pytest.mark.parametrize("name", ["reduce_scatter", "all_reduce", "reduce"])
def test_sums_have_a_part_from_everyone(name: str):
    result = demand(name, DGX1, "8KB")
    assert result.reduces and result.parts.all()
    assert result.wanted[np.arange(8), result.source].all()
    assert result.wanted.all() == (name == "all_reduce")
    assert not demand("all_gather", DGX1, "8KB").reduces


def test_all_to_all_numbers_part_and_destination():
    result = demand("all_to_all", DGX1, "1GB", chunks=2)
    assert wishes(result) == {
        (s, p * 8 + d, d)
        for s in range(8)
        for p in range(2)
        for d in range(8)
        if s != d
    }
    assert wishes(demand("scatter", DGX1, "1GB", 2, root="gpu5")) == {
        (5, p * 8 + d, d) for p in range(2) for d in range(8) if d != 5
    }


def test_roots():
    assert set(demand("broadcast", DGX1, "8KB").source.tolist()) == {0}
    assert set(demand("broadcast", DGX1, "8KB", root="GPU3").source.tolist()) == {3}
    assert set(demand("reduce", PUBLISHED, "16KB", root=0).source.tolist()) == {1}


# --- uneven, tenants


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
    spread = demand("broadcast", DGX1, "8KB", root=3)
    both = together([gather, spread])
    assert both.collective == "custom" and len(both.source) == 16
    named = list(zip(both.source.tolist(), both.chunk.tolist(), strict=True))
    assert len(set(named)) == 16
    assert [c for s, c in named if s == 3] == list(range(9))
    assert together([gather, gather]).collective == "all_gather"


# --- bad input


def test_one_way_links_disconnect_one_way(tmp_path: Path):
    path = tmp_path / "one.toml"
    path.write_text(
        'gpus = 3\n[[links]]\none_way = "0->1 1->2"\nrate = 1e9\nmedium = "serial"\n'
    )
    chain = load_topology(str(path))
    assert len(demand("broadcast", chain, "3KB").source) == 3
    assert demand("reduce", chain, "3KB", root=2).reduces


# --- files


def write(folder: Path, text: str) -> str:
    path = folder / "demand.csv"
    path.write_text(text)
    return str(path)


def test_matrix_file(tmp_path: Path):
    read = read_matrix_file(write(tmp_path, "0,1e3, 2\n\n4,0,5\n6,7,0\n"))
    np.testing.assert_array_equal(read, [[0, 1000, 2], [4, 0, 5], [6, 7, 0]])
    ring = load_topology("ring-3")
    result = demand("all_to_all", ring, matrix=read)
    assert result.size.sum() == 1024 and len(result.source) == 6


def test_demand_file(tmp_path: Path):
    text = "source,chunk,bytes,wanted\ngpu0,0,1000,gpu1 3\n2,5,25,all\n0,1,8,4\n"
    result = read_demand_file(write(tmp_path, text), DGX1)
    assert wishes(result) == {(0, 0, 1), (0, 0, 3), (0, 1, 4)} | {
        (2, 5, d) for d in range(8) if d != 2
    }
    assert result.size.tolist() == [1000.0, 25.0, 8.0] and not result.reduces


@pytest.mark.shared_data
def test_chunks_of_the_published_runs(shared: Path):
    import pandas as pd

    rows = pd.read_csv(shared / "data" / "teccl" / "goldens_ndv2_2chassis.csv")
    for row in rows.to_dict("records"):
        result = demand(str(row["collective"]), PUBLISHED, str(row["size_label"]))
        np.testing.assert_allclose(result.size, row["chunk_bytes"])
        assert result.wanted.sum() == row["n_demands"]
