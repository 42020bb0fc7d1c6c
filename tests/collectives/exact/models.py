"""Models in epochs that tests of the integer search share."""

import dataclasses

import numpy as np

from diffenergy.collectives._milp import integer_model
from diffenergy.collectives._routes import epoch_length, epoch_model

CHUNK = 25e3
"""B."""


def epochs_of(machine, kind="slowest", chunk=CHUNK):
    return epoch_model(machine, chunk, epoch_length(machine, chunk, kind))


def early(machine, demand, model, horizon):
    """The published objective: a wish that is met from epoch k on is worth 1e6 / k."""
    built, rows = integer_model(machine, demand, model, horizon)
    wished = (rows.hold >= 0) & demand.wanted[:, :, None]
    cost = np.zeros(rows.count)
    worth = np.round(1e6 / np.maximum(np.nonzero(wished)[2], 1))
    np.add.at(cost, rows.hold[wished], -worth)
    return dataclasses.replace(built, cost=cost), rows
