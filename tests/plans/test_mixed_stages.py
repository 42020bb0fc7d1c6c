"""Stages of a pipeline whose layers differ: what stands in each, and its memory."""

from typing import Any

import pytest

from diffenergy.plans import Plan, pipeline_layout, training_memory
from diffenergy.workload import ModelShare, ModelSplit, TrainedModel

from .builders import decoder

HIDDEN, EXPERT = 7168, 3 * 7168 * 2048
TABLE = 129280 * HIDDEN
NORMS = 2 * HIDDEN + 1536 + 512
MIXER = (
    HIDDEN * (1536 + 512 + 64)
    + 128 * (1536 * 192 + 512 * 256 + 128 * HIDDEN)
    + NORMS
)  # fmt: skip
DENSE = MIXER + 3 * HIDDEN * 18432
SPARSE = MIXER + HIDDEN * 256 + EXPERT
"""Of a mixture all but the routed experts."""
BEHIND = 2 * HIDDEN**2 + 3 * HIDDEN
"""The joint projection and norms of the module behind, without its layer."""


def stages(plan: Plan, **options: Any) -> list[dict[str, float]]:
    options = dict(batch=1, input_len=512, accumulation=16, dtype="bf16") | options
    model = decoder("deepseek-v3")
    return training_memory(model, plan, model.request(phase="train", **options))


def weights(dense: int, sparse: int, experts: int) -> int:
    return dense * DENSE + sparse * (SPARSE + experts * EXPERT)


@pytest.mark.parametrize("experts", [256, 32])
def test_weights_of_every_stage(experts: int):
    """61 layers, one behind and two ends on four stages: 15, 16, 16 and 14 + 1."""
    plan = Plan(pp=4, dp=256 // experts, ep=256 // experts)
    result = [parts["weights"] / 2 for parts in stages(plan)]
    assert result == [
        weights(3, 12, experts) + TABLE,
        weights(0, 16, experts),
        weights(0, 16, experts),
        weights(0, 15, experts) + 2 * TABLE + BEHIND + HIDDEN,
    ]


def test_weights_of_all_stages_are_those_of_the_model():
    """But for the look-up, which the last stage has, too."""
    every = decoder("deepseek-v3").step_parameters()
    for pp, vp in ((1, 1), (8, 2), (16, 1)):
        result = sum(parts["weights"] / 2 for parts in stages(Plan(pp=pp, vp=vp)))
        assert result == every + (TABLE if pp > 1 else 0)


def test_dense_layers_keep_what_is_theirs():
    """1F1B on 4 stages: 4 micro-batches of 3 + 12 layers, then 3 of 16."""
    result = stages(Plan(pp=4))
    one, layers = decoder("deepseek-v3"), {}
    options: Any = dict(phase="train", batch=1, input_len=512, dtype="bf16")
    for name, place in (("dense", 0), ("sparse", 3)):
        share = ModelShare(ModelSplit(), 3, 1, spans=((place, place + 1),))
        placed = one.placed(share)
        assert isinstance(placed, TrainedModel)
        layers[name] = placed.saved_activations(one.request(**options)).each
    dense, sparse = layers["dense"], layers["sparse"]
    assert dense < sparse
    assert result[0]["activations"] == 4 * (3 * dense + 12 * sparse)
    assert result[1]["activations"] == 3 * 16 * sparse


@pytest.mark.parametrize(
    ("pp", "vp", "sizes"),
    [
        (16, 1, [3, *14 * [4], 2]),  # 61 + 1 behind and two ends on 16
        (8, 4, [1, *30 * [2], 0]), (1, 1, [61]), (2, 1, [31, 30]), (3, 1, [21, 21, 19]),
    ],
)  # fmt: skip
def test_layers_behind_count_in_the_last_stages(pp: int, vp: int, sizes: list[int]):
    model = decoder("deepseek-v3")
    plan = Plan(pp=pp, vp=vp)
    layout = pipeline_layout(model.kinds, plan, model.name, 1)
    assert [stop - start for start, stop in layout.spans] == sizes
    assert [len(x.kinds) for x in layout.each] == sizes
    dense = [x.kinds.count(0) for x in layout.each]
    assert sum(dense) == 3 and dense[0] == min(3, sizes[0])


def test_stages_alike_share_their_kind():
    layout = pipeline_layout(decoder("deepseek-v3").kinds, Plan(pp=8), "x", 1)
    assert layout.kinds == {(0,): 1, (1,): 6, (2,): 1}
    mixed = pipeline_layout((0, 0, 2, 2, 0, 2), Plan(pp=3), "x")
    assert [x.kinds for x in mixed.each] == [(0, 0), (2, 2), (0, 2)]
    assert len(mixed.kinds) == 3
