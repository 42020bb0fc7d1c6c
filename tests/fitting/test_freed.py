"""What a fit frees: by its start, its rows, and what is frozen."""

import dataclasses

import numpy as np
import pytest

from diffenergy.corrections import ACTIVITY_CONSTANTS, prior_file
from diffenergy.fitting import _free_parameters

from .builders import (
    METER,
    NUMBERS,
    ON,
    SEEN,
    UNSEEN,
    Parameter,
    Settings,
    calibrate,
    free_parameters,
    freed,
    meter,
    shape,
    targets_of,
)


def test_from_nothing_every_level_is_free(table):
    free = freed(table, prior_file())
    assert {"global/energy_dram", "memory:HBM2e/dram_efficiency"} <= free
    # what no data can tell from others, and the factors of the reference GPU
    assert free.isdisjoint({"global/core_energy", "global/dynamic_energy"})
    assert not any(name.startswith(f"gpu:{SEEN}") for name in free)


def test_activities_free_the_factors_of_their_gpus_alone(programs):
    """From a fitted start one factor of a GPU that has few readings."""
    own = {f"gpu:{gpu}/{x}" for gpu in (UNSEEN, SEEN) for x in ACTIVITY_CONSTANTS}
    start = prior_file()
    assert freed(programs, start) == own
    result = freed(programs, dataclasses.replace(start, fitted_on=ON))
    assert {x for x in result if UNSEEN in x} == {f"gpu:{UNSEEN}/dynamic_energy"}
    assert {x for x in result if SEEN in x} == {x for x in own if SEEN in x}


@pytest.mark.slow
def test_from_a_fitted_start_the_gpu_of_the_rows_is_free(table, fitted_start):
    """Its own factors alone; other levels stay as they are."""
    result = calibrate([table], fitted_start, Settings(max_steps=4))
    free = result.fit.parameters.free
    assert {p.tag for p in free} == {f"gpu:{SEEN}"}
    assert {"energy_dram", "launch_cycles", "l2_share"} <= {p.constant for p in free}
    levels = dict(result.corrections.levels)
    assert set(levels.pop(f"gpu:{SEEN}")) == {p.constant for p in free}
    assert levels == fitted_start.levels
    known = {"architectures": {SEEN: "architecture:Ampere"}, "rows": result.rows}
    assert known.items() <= result.corrections.fitted_on.items()


def test_twenty_readings_of_an_unseen_gpu_free_all_it_concerns(tmp_path, fitted_start):
    """One below is too few for more than a factor on all dynamic energy."""
    table = shape(tmp_path, UNSEEN, (1100, 1695), range(14, 24))
    assert table.num_rows == 20
    free = freed(table, fitted_start)
    assert {name.partition("/")[0] for name in free} == {f"gpu:{UNSEEN}"}
    assert f"gpu:{UNSEEN}/energy_dram" in free
    assert f"gpu:{UNSEEN}/dynamic_energy" not in free
    less = dataclasses.replace(table, skipped=table.skipped.copy())
    less.skipped[3] = "not read"
    assert freed(less, fitted_start) == {f"gpu:{UNSEEN}/dynamic_energy"}


@pytest.mark.slow
def test_frozen_numbers_keep_their_start(table):
    """A level, a constant and the beginning of others; all else moves."""
    start, freeze = prior_file(), ("memory", "launch_cycles", "energy_")

    def frozen(tag: str, constant: str) -> bool:
        return tag.startswith("memory:") or constant.startswith(freeze[1:])

    result = calibrate([table], start, Settings(max_steps=3, freeze=freeze))
    free = {str(p) for p in result.fit.parameters.free}
    every = freed(table, start)
    assert free == {name for name in every if not frozen(*name.split("/"))} != every
    for tag, values in result.corrections.levels.items():
        for name, value in values.items():
            if frozen(tag, name):
                assert value == start.levels[tag][name], (tag, name)
    moved = result.corrections.levels["global"]["dram_efficiency"]
    assert moved != start.levels["global"]["dram_efficiency"]


@pytest.mark.parametrize(
    ("tag", "constant", "frozen"),
    [
        ("global", "energy_dram", {"global", "energy_dram", "energy_", "e"}),
        ("gpu:a10", "energy_dram", {"gpu", "gpu:a10", "energy_"}),
        (f"sensor:{METER}:gemm", "hot_share", {"sensor", f"{METER}:gemm", "ho"}),
    ],
)
def test_what_a_word_freezes(tag: str, constant: str, frozen: set[str]):
    """A level or its kind, whole; a constant by its beginning."""
    others = {"glob", "gpu:a1", "dram", "sens", METER, f"sensor:{METER}:gemm", "l2"}
    for word in frozen:
        assert _free_parameters.frozen(Parameter(tag, constant), (word,)), word
        assert _free_parameters.frozen(Parameter(tag, constant), ("x", word)), word
    assert not _free_parameters.frozen(Parameter(tag, constant), (*others,))


def test_a_fit_of_nothing_is_an_error(table, fitted_start):
    with pytest.raises(ValueError, match="`--freeze` holds every"):
        calibrate([table], fitted_start, Settings(freeze=("gpu",)))
    nothing = dataclasses.replace(table, skipped=np.full(table.num_rows, "x", object))
    with pytest.raises(ValueError, match="no measured row"):
        calibrate([nothing], prior_file())


def sensed(names: set[str]) -> set[str]:
    """Constants of the campaign's sensor on that GPU among the names."""
    result = {x for x in names if x.startswith("sensor:")}
    assert all(x.startswith(f"sensor:{METER}:gemm@{UNSEEN}/") for x in result)
    return {x.partition("/")[2].partition("/")[2] for x in result}


def test_how_readings_were_taken_is_free_where_there_are_many(tmp_path, fitted_start):
    """From twenty powers of a campaign with a sensor of its own on."""
    many = meter(tmp_path, 21)
    many.avg_power_w[3] = np.nan
    result = freed(many, fitted_start)
    assert sensed(result) == {*NUMBERS}
    assert f"gpu:{UNSEEN}/dynamic_energy" not in result
    few = freed(meter(tmp_path, 5), fitted_start)
    assert few == {f"gpu:{UNSEEN}/dynamic_energy"}
    assert sensed(freed(meter(tmp_path, 5), prior_file())) == {*NUMBERS}
    assert not sensed(freed(meter(tmp_path, 21, power=""), fitted_start))


def test_contents_and_sensor_are_those_of_a_campaign_on_a_gpu(tmp_path, fitted_start):
    """What was left in the memory of one board says nothing of another's."""
    tables = []
    for gpu in (UNSEEN, "h200-sxm"):
        (tmp_path / gpu).mkdir()
        tables.append(meter(tmp_path / gpu, 24, gpu))
    targets = targets_of(fitted_start, *tables)
    freed_set = free_parameters(fitted_start, targets)
    whole = f"sensor:{METER}:gemm"
    result = {str(p) for p in freed_set.free if p.tag.startswith("sensor:")}
    boards = (UNSEEN, "h200-sxm")
    assert result == {f"{whole}@{gpu}/{x}" for gpu in boards for x in NUMBERS}


def test_tags_whose_power_was_not_read(tmp_path, table, fitted_start):
    """Those of GPUs that were timed alone, but not what they share with others."""
    tables = [table, meter(tmp_path, 24, power="")]
    targets = targets_of(fitted_start, *tables)
    unread = set(free_parameters(fitted_start, targets).unread)
    own, others = (set(item.batch.card.tags) for item in targets[::-1])
    assert unread == own - others
    assert {f"gpu:{UNSEEN}", "architecture:Hopper"} <= unread


def test_twenty_times_with_few_powers_are_many_readings(tmp_path, fitted_start):
    """Of an unseen GPU; of one that has been fitted few are."""
    table = meter(tmp_path, 20)
    table.avg_power_w[4:] = np.nan
    result = freed(table, fitted_start)
    assert f"gpu:{UNSEEN}/tensor_efficiency" in result
    seen = freed(meter(tmp_path, 3, SEEN), fitted_start)
    assert f"gpu:{SEEN}/tensor_efficiency" in seen
    assert f"gpu:{SEEN}/dynamic_energy" not in seen
