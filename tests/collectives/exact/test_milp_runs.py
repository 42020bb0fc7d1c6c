"""How an integer search runs: seeds, limits of time, progress, Ctrl-C, bad input."""

import dataclasses
import os
import signal

import numpy as np
import pytest

from diffenergy.collectives._epoch_schedule import epoch_schedule
from diffenergy.collectives._milp import milp
from diffenergy.search import Solving, solve

from ..machine.c3_machines import ndv2_2
from ..machine.c4_machines import (
    all_gather,
    dgx1,
    made,
    ndv2_2_published,
    replay_epochs,
)
from .models import CHUNK, early, epochs_of


def test_the_same_seed_gives_the_same_schedule():
    machine = dgx1()
    model = epochs_of(machine)
    demand = all_gather(machine, CHUNK, 2)
    one, two = (milp(machine, demand, model, 6, how=Solving(seed=5)) for _ in range(2))
    for field in dataclasses.fields(made(one).sends):
        np.testing.assert_array_equal(
            getattr(made(one).sends, field.name),
            getattr(made(two).sends, field.name),
        )


def test_time_limit_ends_a_search():
    machine = ndv2_2_published()
    chunk = 1e9 / 16
    model = epochs_of(machine, "fastest", chunk)
    demand = all_gather(machine, chunk)
    found = milp(machine, demand, model, 35, how=Solving(time_limit=0.05))
    assert found.status == "unknown"
    assert found.schedule is None
    assert found.seconds < 5


def hard_early():
    machine = ndv2_2()
    chunk = 1e9 / 16
    model = epochs_of(machine, chunk=chunk)
    demand = all_gather(machine, chunk)
    return machine, demand, model, 14


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_schedule():
    def press(progress):
        if progress.incumbent is not None:
            os.kill(os.getpid(), signal.SIGINT)

    machine, demand, model, horizon = hard_early()
    built, rows = early(machine, demand, model, horizon)
    found = solve(built, Solving(time_limit=60.0, watch=press))
    assert found.status == "feasible" and found.values is not None
    made = epoch_schedule(machine, demand, model, rows.chosen(found.values))
    replay_epochs(made, model, horizon)


def test_bad_input_has_one_line():
    machine = dgx1()
    model = epochs_of(machine)
    demand = all_gather(machine, CHUNK)
    uneven = dataclasses.replace(demand, size=demand.size * np.arange(1, 9))
    with pytest.raises(ValueError, match="chunks of one size"):
        milp(machine, uneven, model, 5)
