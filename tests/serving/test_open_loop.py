"""The open loop: waits behind prompts by hand, by recursion, and beside the
simulator."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from calibration.studies.served.open_loop import SERVERS, compare
from diffenergy.serving import QUANTILES, Load, deploy, simulate, steady_state
from diffenergy.serving._lengths import TAIL
from diffenergy.serving._steady.first_token import Cumulants, _generation, _moments
from diffenergy.serving._steady.skewed import Skewed
from diffenergy.serving._steady.spread import gaps


def generations(
    number: int, rate: float, decode: float, shared: float, times: np.ndarray
):
    """`number` generations of a gated queue of prompts, each of one of `times`."""
    random, length, drawn = np.random.default_rng(0), decode, []
    for _ in range(number):
        prompts = random.poisson(rate * length)
        read = random.choice(times, prompts, p=TAIL).sum()
        length = shared + read if prompts else decode
        drawn.append(length)
    return np.array(drawn)


@pytest.mark.parametrize(
    "shared, number, bounds",
    [
        (0.0, 20_000, (0.02, 0.04, 0.06, 0.12)),
        pytest.param(0.021, 100_000, (0.01, 0.02, 0.03, 0.03), marks=pytest.mark.slow),
    ],
)
def test_moments_of_generations(shared: float, number: int, bounds: tuple[float, ...]):
    """60 % of the time on prompts, beside decoding and in steps of their own."""
    times = np.sort(np.random.default_rng(1).uniform(0.05, 0.25, len(TAIL)))
    rate = 0.6 / float(times @ TAIL)
    drawn = generations(number, rate, 0.02, shared, times)
    shares = jnp.asarray(0.02), jnp.asarray(shared)
    result = _generation(jnp.asarray(rate), *shares, _moments(jnp.asarray(times)))
    for k, bound in enumerate(bounds, 1):
        assert float(result[k - 1]) == pytest.approx(np.mean(drawn**k), rel=bound)


def test_prompts_alone_are_a_queue_of_one_server():
    """Without decoding and a step's cost: Pollaczek and Khinchine's mean wait, were
    requests read one by one. Here E[S^2] / E[S] tends to rate d^2 / (1 - r^2)."""
    rate, time = 3.0, 0.2
    tiny = jnp.asarray(1e-9)
    d = _moments(jnp.full(len(TAIL), time))
    s1, s2, *_ = _generation(jnp.asarray(rate), tiny, tiny, d)
    r = rate * time
    assert float(s2 / s1) == pytest.approx(rate * time**2 / (1 - r**2), rel=1e-6)


@pytest.mark.parametrize("skew", [-1.0, 0.0, 5.0])
def test_a_skewed_time(skew: float):
    """Quantiles and shares of Pearson's type III at mean 3 and deviation 0.5."""
    numbers = (3.0, 0.25, skew * 0.125, 0.0, 1.0)
    mean, variance, third, none, one = (jnp.asarray(x) for x in numbers)
    result = Skewed(Cumulants(mean, variance, third), none, one)
    exact = stats.pearson3(skew, 3.0, 0.5)
    np.testing.assert_allclose(result.quantiles(), exact.ppf(QUANTILES), rtol=4e-3)
    shares = [0.4, 0.6, 0.95]
    limits = jnp.asarray(exact.ppf(shares))
    np.testing.assert_allclose(result.below(limits), shares, atol=6e-3)


def test_a_wait_before_it():
    """A time of 1 s and with probability 0.3 an exponential wait of 2 s: the share
    beyond 1 + t is 0.3 exp(-t / 2)."""
    numbers = (1.0, 1e-14, 0.0, 0.3, 2.0)
    mean, variance, third, taken, wait = (jnp.asarray(x) for x in numbers)
    result = Skewed(Cumulants(mean, variance, third), taken, wait)
    expected = [1.0, *(1 + 2 * np.log(0.3 / x) for x in (0.1, 0.05, 0.01))]
    np.testing.assert_allclose(result.quantiles(), expected, rtol=1e-5)
    assert float(result.mean) == pytest.approx(1.6)
    assert float(result.atoms.mean) == pytest.approx(1.6)

    def last(wait: Any) -> Any:
        return Skewed(Cumulants(mean, variance, third), taken, wait).quantiles()[3]

    assert float(jax.grad(last)(wait)) == pytest.approx(np.log(30), rel=1e-4)


def test_crowded_gaps_keep_their_mean():
    """Generalized Poisson: mean nu, variance nu / (1 - c)^2."""
    nu, c, time = 0.6, 0.4, 0.03
    numbers = (jnp.asarray(x) for x in (0.01, [time] * 16, nu, 0.0, c))
    result = gaps(*numbers)
    assert float(result.mean) == pytest.approx(0.01 + nu * time, rel=1e-4)
    assert float(result.variance) == pytest.approx(
        nu / (1 - c) ** 2 * time**2, rel=1e-3
    )
    none = float(result.below(jnp.asarray(0.011)))
    assert none == pytest.approx(np.exp(-nu * (1 - c)))


@pytest.mark.slow
def test_derivatives_by_the_rate():
    """Of the mean and of all percentiles, beside central differences."""
    load = Load(rate=1.0, max_batch=128, input_len="lognormal:512:1", slo_ttft=0.08)
    place = deploy("qwen3-8b", "h100-sxm", load)
    costs = place.costs()

    def times(rate: Any) -> Any:
        x = place.steady(costs, rate=rate).ttft
        return jnp.append(x.quantiles, x.mean)

    forward = jax.jit(lambda x: jax.jvp(times, (x,), (jnp.ones_like(x),)))
    back = jax.jit(jax.grad(lambda x: times(x)[-1]))
    for rate in map(jnp.asarray, (0.5, 8.0, 20.0)):
        step = 1e-4 * rate
        (up, _), (_, own), (down, _) = (forward(rate + x) for x in (step, 0.0, -step))
        assert bool(jnp.all(jnp.isfinite(own)))
        np.testing.assert_allclose(own, (up - down) / (2 * step), rtol=2e-3)
        assert float(back(rate)) == pytest.approx(float(own[-1]), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("share", [0.3, 0.75])
def test_the_closed_form_beside_the_simulator(name: str, share: float):
    ours, theirs = (x["ttft_s"] for x in compare(SERVERS[name], share))
    for figure, bound in (("mean", 0.1), ("p95", 0.15), ("p99", 0.25)):
        assert ours[figure] == pytest.approx(theirs[figure], rel=bound)


@pytest.mark.slow
def test_beyond_three_quarters_the_answer_says_so():
    load: dict[str, Any] = {"max_batch": 16, "input_len": 256, "output_len": 64}
    one = steady_state("qwen3-0.6b", "h100-sxm", {"rate": 1.0, **load}).summary
    most = one["saturation_request_rate_per_s"]
    for share, reported in ((0.74, False), (0.76, True)):
        options = {"rate": share * most, **load}
        warnings = steady_state("qwen3-0.6b", "h100-sxm", options).warnings
        assert any("% used" in x for x in warnings) is reported


@pytest.mark.slow
def test_goodput_counts_those_that_wait_behind_prompts():
    """70B in fp8 on two H100: the simulator serves 64 % in time."""
    server = SERVERS["70B fp8, 2 H100"]
    load = {"rate": 4, "input_len": 1000, "output_len": 250, "slo_ttft": 0.2}
    result = steady_state(server.model, server.gpu, load, **server.options).summary
    random = np.random.default_rng(7)
    trace = {"arrival_s": np.cumsum(random.exponential(0.25, 20_000))}
    trace |= {"input_len": np.full(20_000, 1e3), "output_len": np.full(20_000, 250.0)}
    limit = {"slo_ttft": 0.2}
    many = simulate(trace, server.model, server.gpu, limit, **server.options).summary
    assert result["goodput_per_s"] == pytest.approx(many["goodput_per_s"], rel=0.1)
