"""Times of collectives: closed forms by hand, the choice among candidates, measured."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from diffenergy.hardware import GpuSpec, LinkCosts, load_gpu
from diffenergy.physics import _links as links
from diffenergy.records import as_float, as_index

RATE, SIZE = 1e11, 8e8  # 8 ms for S on one link


@pytest.mark.parametrize(
    ("algorithm", "collective", "ranks", "steps", "shares"),
    [  # messages in a row; S sent by the busiest GPU
        ("ring", "all_gather", 8, 7, 7 / 8),
        ("ring", "reduce_scatter", 4, 3, 3 / 4),
        ("ring", "all_reduce", 8, 14, 14 / 8),
        ("direct", "all_reduce", 4, 1, 3),
        ("two_shot", "all_reduce", 4, 2, 6 / 4),
        ("switch", "all_reduce", 8, 2, 9 / 8),
        ("direct", "all_to_all", 8, 1, 7 / 8),
        ("ring", "broadcast", 8, 7, 1),
        ("ring", "reduce", 4, 3, 1),
        ("direct", "scatter", 8, 1, 7 / 8),
        ("direct", "send_recv", 2, 1, 1),
    ],
)
def test_closed_forms(algorithm, collective, ranks: int, steps: int, shares: float):
    terms = np.array([1, ranks - 1, (ranks - 1) / ranks])
    got = np.array(links.GEOMETRY[algorithm, collective]) @ terms
    assert got == pytest.approx([steps, shares], rel=1e-12)


@pytest.mark.parametrize(
    ("word", "family", "kind"),
    [
        ("AllReduce", "", "all_reduce"), ("alltoall", "", "all_to_all"),
        ("reduce-scatter", "", "reduce_scatter"), ("p2p", "", "send_recv"),
        ("all_reduce", "SGLang_CustomAllReduce_graph", "custom_all_reduce"),
        ("all_reduce", "trtllm", "custom_all_reduce"),
        ("all_gather", "custom", "all_gather"),
    ],
)  # fmt: skip
def test_spellings(word: str, family: str, kind: str):
    assert links.link_kind(word, family) == kind


# candidates ---------------------------------------------------------------------


def constants(**fields: list[float] | float) -> LinkCosts:
    """One collective; only what is given differs from "free"."""
    slots = {n: [0.0] * 4 for n in ("floor", "step", "fill", "bias", "bias_ranks")}
    values = {**slots, "relative": [1.0] * 4, "share": [1.0] * 3, "narrow": 0.0}
    values |= {"switch": 0.0, **fields}
    return LinkCosts(**{n: jnp.asarray(v)[None] for n, v in values.items()})  # pyright: ignore[reportArgumentType]


def ways(kind: str, ranks: float, c: LinkCosts, narrow: float = 0.0):
    one = jnp.ones(1)
    index = jnp.full(1, list(links.LINK_KINDS).index(kind), jnp.int32)
    return links.link_candidates(
        index, SIZE * one, ranks * one, narrow * one, RATE * one, c
    )


def test_time_of_a_candidate():
    c = constants(
        floor=[5e-6, 0.0, 0.0, 0.0],
        step=[1e-6, 0.0, 0.0, 0.0],
        fill=[1e-3, 0.0, 0.0, 0.0],
        relative=[0.5, 1.0, 1.0, 1.0],
        share=[0.4, 0.8, 1.0],
        narrow=0.25,
    )
    result = ways("all_gather", 4.0, c, narrow=1.0)
    sent = 1.25 * 0.75 * SIZE / (RATE * 0.8 * 0.5)  # 18.75 ms
    hand = 5e-6 + 3e-6 + sent + 1e-3 * np.sqrt(sent)
    assert float(result.time[0, 0]) == pytest.approx(hand, rel=1e-6)
    assert result.traffic[0, 0] == pytest.approx(0.75 * SIZE)


@pytest.mark.parametrize(
    ("ranks", "share"), [(2, 0.4), (2.0 * 2**0.5, 0.6), (8, 1.0), (64, 1.0)]
)
def test_share_between_measured_numbers_of_gpus(ranks: float, share: float):
    result = ways("broadcast", ranks, constants(share=[0.4, 0.8, 1.0]))
    assert result.time[0, 2] == pytest.approx(SIZE / RATE / share, rel=1e-6)


def test_two_take_part_in_a_message():
    c = constants(step=[1e-3] * 4, share=[0.4, 0.8, 1.0], bias_ranks=[9.0] * 4)
    alone, many = ways("send_recv", 2.0, c), ways("send_recv", 64.0, c)
    assert many.time[0].tolist() == alone.time[0].tolist()
    assert many.choice[0].tolist() == alone.choice[0].tolist()
    assert many.time[0, 0] == pytest.approx(1e-3 + SIZE / RATE / 0.4, rel=1e-6)


def test_switches_reduce_where_they_can():
    for switch, narrow, illegal in ((1, 0, 0), (0, 0, 1), (1, 1, 1)):
        result = ways("all_reduce", 8.0, constants(switch=float(switch)), float(narrow))
        assert result.illegal[0].tolist() == [0, 0, 0, illegal]
    # its time is never taken: 9/8 S against 14/8 S
    assert links.expected_time(result)[0] == pytest.approx(14e-3, rel=1e-3)


def test_choice_follows_belief():
    same = ways("all_gather", 8.0, constants())
    assert links.weights(same)[0].tolist() == pytest.approx([1 / 3] * 3 + [0], abs=1e-9)
    slow = constants(floor=[1e-3, 0.0, 0.0, 0.0], bias=[0.5, 0.0, 0.0, 0.0])
    result = ways("all_gather", 8.0, slow)  # 8 ms believed to be 0.6 x as long
    assert links.expected_time(result)[0] == pytest.approx(8e-3, rel=1e-2)


def test_belief_beyond_what_was_measured():
    c = constants(bias_ranks=[1.0, 0.0, 0.0, 0.0])
    for ranks in (8.0, 72.0):
        assert ways("all_gather", ranks, c).choice[0, 0] == pytest.approx(
            np.log(2) / links.LINK_TAU, rel=1e-6
        )


def test_one_gpu_sends_nothing():
    result = ways("all_reduce", 1.0, constants(floor=[2e-6] * 4, step=[1.0] * 4))
    assert result.time[0].tolist() == pytest.approx([2e-6] * 4)
    assert not result.traffic.any()


# data -------------------------------------------------------------------


@eqx.filter_jit
def modelled(gpu: GpuSpec, kind, size, ranks, narrow):
    costs = links.link_costs(gpu, kind)
    result = links.link_candidates(kind, size, ranks, narrow, gpu.link_bandwidth, costs)
    return links.expected_time(result)


@pytest.mark.shared_data
def test_shipped_constants_on_nccl(shared):
    table: Any = pd.read_csv(shared / "data" / "aiconfigurator" / "nccl.csv.gz")
    table["kind"] = [
        list(links.LINK_KINDS).index(word.replace("alltoall", "all_to_all"))
        for word in table["collective"]
    ]
    longest = table.groupby("gpu").size().max()
    means = []
    for word, part in table.groupby("gpu"):
        rows = part.iloc[np.arange(longest) % len(part)]  # one shape, one compilation
        got = modelled(
            load_gpu(str(word)),
            as_index(rows["kind"].to_numpy()),
            as_float(rows["message_bytes"].to_numpy()),
            as_float(rows["num_gpus"].to_numpy()),
            as_float((rows["dtype"] == "int8").to_numpy()),
        )
        error = (np.asarray(got)[: len(part)] / (1e-6 * part["time_us"]) - 1).abs()
        large = part["message_bytes"] > 1e6
        means.append(error.groupby([part["collective"], part["dtype"], large]).mean())
    worst: Any = pd.concat(means).groupby(level=2).max()
    assert worst[True] < 0.10  # from 1 MB, every GPU, collective and dtype
    assert worst[False] < 0.20
