"""Measurement models: what a reading shows is not what the GPU did.

They belong to a campaign, never to a GPU, and are applied to a prediction only when it
is compared with a reading; `estimate` answers for the steady state and contains none.
`Instrument` holds the facts of each reading, `Sensor` the constants that are fitted.
The *predicted* time and power enter below: measured ones would hide errors.
"""

from typing import Any, Final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from diffenergy.physics import TimeEnergy
from diffenergy.records import Record, as_float

from .instruments import Sensor


def _fact(default: float = 0.0) -> Any:
    return eqx.field(converter=as_float, default=default)


class Instrument(Record):
    """Facts of each reading, one row a run: known before anything is fitted.

    Passes: the window of a run of `iterations` holds the start of its process. Kernels:
    a run of `burst` kernels (infinite: sustained) that is short against `GOVERNOR_TIME`
    is over before the power limiter acts; `loop_seconds` is the time in which the host
    can launch one kernel. A run of a sampled campaign replays a graph of `loop` kernels
    for a target time, and its power is the mean of NVML samples.
    """

    startup_seconds: Float[Array, "*r"] = _fact()
    startup_power: Float[Array, "*r"] = _fact()  # W
    iterations: Float[Array, "*r"] = _fact(jnp.inf)
    burst: Float[Array, "*r"] = _fact(jnp.inf)
    loop_seconds: Float[Array, "*r"] = _fact()
    call_seconds: Float[Array, "*r"] = _fact()
    """Host time of a call that a reading holds beside the kernel, s."""
    loop: Float[Array, "*r"] = _fact(1.0)
    loop_body: Float[Array, "*r"] = _fact()
    """Shortest time of one replay during the warm-up that plans the run, s."""
    sequences: Float[Array, "*r"] = _fact()
    """Sequences (attention), or units of load dealt out to experts, that the host
    prepares before a run."""
    operand_bytes: Float[Array, "*r"] = _fact()
    """Bytes that are made (attention) or held (GEMM: all sets of weights) by a run."""
    rows: Float[Array, "*r"] = _fact()  # output rows of a GEMM
    narrow: Float[Array, "*r"] = _fact()
    """1 where a run follows runs of other kernels (8-bit blocks), else 0."""
    unfilled: Float[Array, "*r"] = _fact()
    """1 where nobody filled the weights, 0 where they are random."""
    cold: Float[Array, "*r"] = _fact()
    """Probability that the board was idle before the run."""
    fresh: Float[Array, "*r"] = _fact()
    """1 where a fresh process made the run (GEMM), or it is the first of a series
    (attention)."""


GOVERNOR_TIME: Final = 20e-3
"""Time that the power limiter needs to act, s (`README.md`, Instruments)."""
SAMPLE_SECONDS: Final = 0.1005
"""Time between two power samples of the sampled campaigns, s."""
_SAMPLES: Final = 40
"""Samples that are followed: 4 s, longer than any run that is short to the sensor."""
_REPLAYS: Final = (6, 3000)
"""Fewest and most replays of a graph (the collector's)."""
_OF_ZEROS: Final = 0.7
"""Switching that operands of zeros save; like the next two found by this project in the
public H200 power tables of AIConfigurator."""
_HUGE_EDGE: Final = 0.12
"""Width in ln bytes over which pages become new (exponent 8.3)."""
_FEW_ROWS: Final = 100.0
"""Rows below which weights dominate the bytes."""
_COLD_TIME: Final = 60e-6
_FRESH_TIME: Final = 1e-3
"""Times of a kernel of which cold and fresh shares are stated, s: units, not fits."""


def data_activity(
    instrument: Instrument, s: Sensor
) -> tuple[Float[Array, "*r"], Float[Array, "*r"]]:
    """Switching of bytes, and of the math beyond it, relative to random operands.

    Weights that nobody filled (`unfilled` of a campaign and type: 16-bit and plain fp8
    of the vLLM campaigns, where power and where time at a power limit were read) hold
    left-over data, or zeros where their pages are new: in a fresh process, or where all
    sets together (12 n k bytes) are huge; those of other types are random. Few rows:
    weights dominate; one operand of two:

        zeros = fresh_saving (fresh), else huge_saving/(1 + (huge_bytes/bytes)^8.3)
        data_activity = (1 - 0.7 zeros)(1 - weight_saving/(1 + m/100))
        math_activity = (1 - 0.7 zeros)(1 - math_saving)/data_activity
    """
    i = instrument
    huge = jax.nn.sigmoid(jnp.log((i.operand_bytes + 1.0) / s.huge_bytes) / _HUGE_EDGE)
    zeros = jnp.where(i.fresh > 0, s.fresh_saving, s.huge_saving * huge)
    weights = s.weight_saving / (1 + i.rows / _FEW_ROWS)
    moved = 1 - i.unfilled * (1 - (1 - _OF_ZEROS * zeros) * (1 - weights))
    pages = 1 - i.unfilled * _OF_ZEROS * zeros
    return moved, (1 - i.unfilled * s.math_saving) * pages / moved


def governed(
    instrument: Instrument, free: TimeEnergy, limited: TimeEnergy
) -> TimeEnergy:
    """Runs of bursts: of a length L, L/(L + `GOVERNOR_TIME`) is under the limiter."""
    length = jnp.minimum(instrument.burst, 1e9) * free.time / GOVERNOR_TIME
    share = length / (1 + length)
    time = free.time + share * (limited.time - free.time)
    return TimeEnergy(time, free.energy + share * (limited.energy - free.energy))


def reading(
    instrument: Instrument,
    sensor: Sensor | None,
    sampling: str,
    free: TimeEnergy,
    limited: TimeEnergy,
) -> TimeEnergy:
    """Reading of a campaign, per iteration, of runs that would be `free` of the power
    limit or `limited` by it.

    `sampling` ("", "series" or "gap") says how power was sampled. In this order, with
    n iterations and s0 = startup_seconds:

        bursts    x = burst t_free/20 ms
                  t = t_free + x/(1 + x) (t_governed - t_free), energy likewise
        sensor    P_read from P = E/t and the history of the run
        loops     t_read = (t^8 + loop_seconds^8)^(1/8)
                  (the host launches slower than the GPU runs)
        calls     t_read + call_seconds
                  (host time that a reading holds beside the kernel)
        start-up  t_read + s0/n         E_read + startup_power s0/n
    """
    i = instrument
    run = governed(i, free, limited)
    power = run.energy / run.time
    if sensor is not None and sampling:
        by = {"series": _series_power, "gap": _gap_power}[sampling]
        power = by(i, sensor, run.time, power)
    time = (run.time**8 + i.loop_seconds**8) ** (1 / 8)
    extra = jnp.where(jnp.isinf(i.iterations), 0.0, i.startup_seconds / i.iterations)
    time = time + i.call_seconds
    return TimeEnergy(time + extra, power * time + extra * i.startup_power)


def run_seconds(i: Instrument, time: Float[Array, "*r"]) -> Float[Array, "*r"]:
    """Length of the measured run of replays of `loop` kernels of `time` s each."""
    return replayed_seconds(time, i.loop, i.loop_body)


def replayed_seconds(
    time: Float[Array, "*r"], loop: Float[Array, "*r"], least: Float[Array, "*r"]
) -> Float[Array, "*r"]:
    """Length of a run, s, from the kernels of a replay and its least length (s).

    A run of replays of L = `loop` kernels is planned by its warm-up (code of the
    collector, folder `collector` of `ai-dynamo/aiconfigurator`):

        body = max(L t, loop_body)      target = 0.3 s (body < 0.1 ms), else 1 s
        T    = N L t      N = floor(target/body) + 1, at least 6, at most 3000
    """
    body = jnp.maximum(loop * time, least)
    target = jnp.where(body < 1e-4, 0.3, 1.0)
    replays = jnp.clip(jnp.floor(target / body) + 1, *_REPLAYS)
    return replays * loop * time


def hot_share(length: Array, before: Array, leaving: bool = False) -> Array:
    """Mean over the samples of a run of `length` s of the share of the sensor's last
    second that is as hot as the run: min(1, w + s_i), s_i = 0, `SAMPLE_SECONDS`, ...

    Few runs are longer than the sensor's second, so that samples hold what was before.
    `before`: w, the share of the second before the first sample that was as hot as the
    run itself; `leaving`: it leaves the second while this run enters (F').

        F(T, w)  = mean_i min(1, w + s_i)
        F'(T, w) = mean_i min(1, max(w - s_i, 0) + s_i)
        P_read   = background + F (P - background)
    """
    s = SAMPLE_SECONDS * jnp.arange(_SAMPLES)
    inside = jnp.where(s <= length[..., None], 1.0, 0.0)
    w = before[..., None] - (s if leaving else 0.0)
    share = jnp.minimum(1.0, jnp.maximum(w, 0.0) + s)
    return jnp.sum(inside * share, -1) / jnp.sum(inside, -1)


def series_shares(i: Instrument, s: Sensor, time: Array) -> tuple[Array, Array]:
    """Hot share of the sensor's readings (`hot_share`): after idling, back to back.

        warm:  w = warm_share T + warm_least          (back to back)
        cold:  w = cold_share (t/60 us) min(1, m/128)^cold_rows         (idle before)
        fresh: w = fresh_share (t/1 ms)^0.5           (first runs of a process)

    Of other types than bf16 (block-scaled fp8) 0, cold_narrow (t/60 us)^0.5 and
    fresh_narrow (t/1 ms)^0.5. Warm runs of these have max(P, previous_power) in place
    of the background; before cold ones the warm-up heats. Cold shares stay below
    `cold_limit` (an 8-norm).
    """
    length = run_seconds(i, time)
    narrow = i.narrow > 0
    relative = time / _COLD_TIME
    few = jnp.minimum(1.0, jnp.maximum(i.rows, 1.0) / 128) ** s.cold_rows
    cold = jnp.where(
        narrow, s.cold_narrow * relative**0.5, s.cold_share * relative * few
    )
    cold = (cold**-8 + s.cold_limit**-8) ** (-1 / 8)
    fresh = (
        jnp.where(narrow, s.fresh_narrow, s.fresh_share) * (time / _FRESH_TIME) ** 0.5
    )
    after_idle = jnp.where(i.fresh > 0, fresh, cold)
    warm = s.warm_share * length + s.warm_least
    return hot_share(length, after_idle), hot_share(length, warm)


def idle_before(i: Instrument) -> Float[Array, "*r"]:
    """Probability that a run of a sampled campaign began on an idle board."""
    return jnp.maximum(i.cold, jnp.where(i.fresh > 0, 1.0, 0.0))


def _series_power(i: Instrument, s: Sensor, time: Array, power: Array) -> Array:
    """Power of a mixture of runs back to back and runs after idling (W)."""
    after_idle, warm = series_shares(i, s, time)
    rise = power - s.background
    length = run_seconds(i, time)
    own = hot_share(length, jnp.zeros_like(length))
    after_hot = power * own + (1 - own) * jnp.maximum(power, s.previous_power)
    back_to_back = jnp.where(i.narrow > 0, after_hot, s.background + rise * warm)
    idle = idle_before(i)
    return idle * (s.background + rise * after_idle) + (1 - idle) * back_to_back


def _gap_power(i: Instrument, s: Sensor, time: Array, power: Array) -> Array:
    """A run after a pause behind a run of its own kind.

        pause  = gap + gap_sequence sequences + gap_byte bytes,
                 kept below 1 s by (pause^-4 + 1)^(-1/4)
        P_read = background + F'(T, 1 - pause) (P - background)
                 F'(T, 0) for the first of a series

    `sequences`: what the host prepares before a run, sequences of attention or units of
    load dealt one by one to experts; bytes: Q, K and V that are made new. Before the
    first run of a series, prefill of 16384 queries, the board idles for a second or
    more. Digits of its readings say that most are means of ten samples, as of other
    runs; they lie at 0.41 of the way to the run's power, F'(1 s, 0) = 0.45.
    """
    gap = s.gap + s.gap_sequence * i.sequences + s.gap_byte * i.operand_bytes
    gap = jnp.maximum((gap**-4 + 1.0) ** (-1 / 4), i.fresh)
    share = hot_share(run_seconds(i, time), 1 - gap, leaving=True)
    return s.background + share * (power - s.background)
