"""Charts of a planned fleet end where its GPUs do."""

import re

import numpy as np
import pytest
from chart_checks import check

from diffenergy import fleet
from diffenergy.charts import Boxes


def test_areas_of_a_pool_are_its_gpus():
    """In every slot the areas of the models end at the GPUs that are used; these and
    the parked ones are all of the pool."""
    planned = fleet.plan("docs/examples/fleet/fleet.toml", objective="carbon")
    charts, slots = planned.charts(), planned.summary["slots"]
    check(charts)
    problem = planned.solved.problem
    for pool, count in zip(problem.pools, problem.count, strict=True):
        (panel,) = charts[f"pool-{pool}"].panels
        tops = np.zeros(slots)
        for mark in panel.marks:
            if isinstance(mark, Boxes):
                assert mark.low == pytest.approx(tops)
                tops = np.array(mark.high)
        used = np.zeros(slots)
        for x in planned.summary["plan"]:
            if x["pool"] == pool:
                used[x["slot"]] += x["replicas"] * x["gpus_per_replica"]
        assert tops == pytest.approx(used)
        assert len(panel.readings) == slots
        for reading in panel.readings:
            said = re.findall(r" (\d+)(?=,|$)", reading.text)
            assert sum(map(float, said)) == count
