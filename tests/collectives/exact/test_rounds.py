"""Searches in rounds of a few epochs each."""

import pytest

from diffenergy.collectives._milp import rounds
from diffenergy.search import Solving

from ..machine.c4_machines import (
    GBPS,
    all_gather,
    dgx1,
    made,
    ndv2_2_published,
    replay_epochs,
    ring,
    star,
)
from .test_milp import CHUNK, epochs_of


@pytest.mark.parametrize(
    ("machine", "chunk", "length", "most"),
    [
        (dgx1(0.0), CHUNK, 1, 4),
        (dgx1(), CHUNK, None, 6),
        (star(4, False), CHUNK, 1, 6),
        (ndv2_2_published(), 1e9 / 16, 3, 12),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_rounds_make_true_schedules(machine, chunk, length, most):
    model = epochs_of(machine, chunk=chunk)
    demand = all_gather(machine, chunk)
    found = rounds(machine, demand, model, length=length, how=Solving(time_limit=60.0))
    assert found.status == "feasible"
    assert made(found).epochs <= most
    replay_epochs(made(found), model, made(found).epochs)


def test_rounds_carry_what_is_in_flight():
    # Hops of 2 epochs in rounds of 1: every arrival falls in a later round.
    machine = ring(5, latency=0.5e-6, rate=25 * GBPS)
    model = epochs_of(machine)
    assert set(model.hop.tolist()) == {2}
    found = rounds(machine, all_gather(machine, CHUNK), model, length=1)
    assert made(found).epochs == 4  # two hops, two chunks a link


def test_rounds_stop_at_the_horizon():
    machine = dgx1()
    model = epochs_of(machine)
    found = rounds(machine, all_gather(machine, CHUNK), model, length=1, high=2)
    assert found.schedule is None
    assert found.status == "infeasible"
