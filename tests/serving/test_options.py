"""What a load or a server is given by name: one number or a list of one; slips are
refused by the name that was meant."""

from typing import Any

import numpy as np
import pytest

from diffenergy.results import Infeasible
from diffenergy.serving import Load, deploy, simulate, steady_state

MODEL = "qwen3-0.6b"
TRACE: dict[str, Any] = {"arrival_s": [0], "input_len": [8], "output_len": [8]}


@pytest.mark.parametrize("given", [400, 400.0, [400], np.array(400.0)])
def test_a_clock_and_a_limit_are_numbers(given: Any):
    found = deploy(MODEL, power_limit=given, sm_clock=1.305e9, mem_clock=2.619e9)
    expected = (1.305e9, 2.619e9, 400.0, None, True)
    assert found.setting == expected


@pytest.mark.parametrize(
    "given, error, message",
    [
        (
            [400, 500],
            ValueError,
            "`power_limit` has 2 values; a server takes one value",
        ),
        ("x", TypeError, "`power_limit` is a str; allowed is int or float"),
        (1.0, ValueError, "`power_limit` is 1 W; h100-sxm allows"),
    ],
)
def test_other_limits_are_refused(given: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        deploy(MODEL, power_limit=given)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"ratte": 3}, r"`ratte` is no field of a load \(did you mean `rate`\?\)"),
        ({"rate": 3, "zzz": 1}, "`zzz` is no field of a load; allowed are cached_len"),
        ({"slo_ttft": "x"}, "`slo_ttft` is 'x'; allowed is a number above 0"),
        ({"waves": 0}, "`waves` is 0; allowed is a number from 1 on"),
        ({"output_len": "x"}, "`output_len` is 'x'"),
        ({"slo_ttft": 1}, "`rate` is missing"),
    ],
)
def test_a_load_names_what_is_wrong_with_it(given: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        Load(**given)
    with pytest.raises(ValueError, match=message):
        steady_state(MODEL, "h100-sxm", given)


@pytest.mark.parametrize(
    "given, meant",
    [("power_limt", "power_limit"), ("dtyp", "dtype"), ("optimise", "optimize")],
)
def test_options_that_do_not_exist(given: str, meant: str):
    options: dict[str, Any] = {given: 1}
    hint = rf"`{given}` is no field of a server \(did you mean `{meant}`\?\)"
    with pytest.raises(ValueError, match=hint):
        steady_state(MODEL, "h100-sxm", Load(rate=1), **options)
    if meant == "optimize":
        hint = f"`{given}` is no field of a server; allowed are changes"
    with pytest.raises(ValueError, match=hint):
        deploy(MODEL, "h100-sxm", Load(rate=1), **options)
    with pytest.raises(ValueError, match=hint):
        simulate(TRACE, MODEL, "h100-sxm", **options)


def test_memory_that_does_not_suffice_leads_with_what_is_given():
    big = "llama-3.1-70b"
    with pytest.raises(Infeasible, match="^not one request of llama-3.1-70b fits h100"):
        deploy(big, "h100-sxm", Load(rate=1))
    with pytest.raises(Infeasible, match="^`memory_fraction` is 0.5: not one request"):
        deploy(big, "h100-sxm", Load(rate=1), memory_fraction=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, 10.0])
def test_nobody_waits_at_a_server_with_room(rate: float):
    """A mean of 1e-200 requests that wait is nobody."""
    found = steady_state(MODEL, "h100-sxm", Load(rate=rate)).summary
    assert found["waiting_requests"] == 0.0


@pytest.mark.slow
def test_a_server_saturates_at_one_rate():
    """Whichever way requests come. Between batches a step is interpolated, so that the
    table has the number of slots even where fewer clients come (64 of 211)."""
    lengths: dict[str, Any] = {"input_len": 1000, "output_len": 250}
    loads = ({"rate": 2}, {"concurrency": 64}, {"max_batch": 10_000})
    most = [
        steady_state(
            "llama-3.1-70b", "h100-sxm", load | lengths, tp=2, dtype="fp8"
        ).summary["saturation_request_rate_per_s"]
        for load in loads
    ]
    assert most == pytest.approx([most[0]] * 3, rel=1e-6)
