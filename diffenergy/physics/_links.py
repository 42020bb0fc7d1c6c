"""Time of a collective among the GPUs of one machine: alpha-beta with a floor.

A collective of S bytes (`bytes`: the buffer that a GPU ends or begins with, whichever
is larger) on n GPUs, each with a link of B bytes/s a direction, by one algorithm and
protocol p:

    t_p = floor_p + step_p steps + x + fill_p sqrt(x),
    x = (1 + narrow) traffic S / (B share(n) relative_p)

`steps` and `traffic` follow from the algorithm (`GEOMETRY`). The square root is what
is left of a pipeline over the best number of chunks: k chunks of x/k over h hops of
latency a take x + h a + k a + h x/k, least at k = sqrt(h x/a). The library takes p with
weight softmax((-ln t_p + bias_p + bias_ranks_p ln(n/4)) / `TAU`): a soft minimum of the
times that it believes in, which are not always the true ones. Share and bias keep their
values at 2 and at 8 GPUs for fewer and for more.
"""

from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from .. import smooth
from ..hardware import COSTED_COLLECTIVES, GpuSpec, LinkCosts
from ..records import Record, as_float, as_index

Terms = tuple[int, int, int]
"""Coefficients of 1, n - 1 and (n - 1)/n."""
_ONE: Final[Terms] = (1, 0, 0)
_TWO: Final[Terms] = (2, 0, 0)
_REST: Final[Terms] = (0, 1, 0)  # n - 1
_SPREAD: Final[Terms] = (0, 0, 1)  # (n - 1)/n
_BOTH: Final[Terms] = (0, 0, 2)
GEOMETRY: Final[dict[tuple[str, str], tuple[Terms, Terms]]] = {
    ("ring", "all_reduce"): ((0, 2, 0), _BOTH),
    ("direct", "all_reduce"): (_ONE, _REST),  # everyone to everyone at once
    ("two_shot", "all_reduce"): (_TWO, _BOTH),  # parts summed, then gathered, direct
    ("switch", "all_reduce"): (_TWO, (2, 0, -1)),  # 1 + 1/n: parts out, sums in
    ("ring", "all_gather"): (_REST, _SPREAD),
    ("ring", "reduce_scatter"): (_REST, _SPREAD),
    ("direct", "all_to_all"): (_ONE, _SPREAD),
    ("ring", "broadcast"): (_REST, _ONE),  # pipelined in chunks
    ("ring", "reduce"): (_REST, _ONE),
    ("direct", "scatter"): (_ONE, _SPREAD),
    ("direct", "gather"): (_ONE, _SPREAD),
    ("direct", "send_recv"): (_ONE, _ONE),
}
"""(steps, traffic) of an algorithm for a collective: messages in a row, and bytes over
the busiest direction of a GPU's link / S (Thakur, Rabenseifner, Gropp, "Optimization of
Collective Communication Operations in MPICH", 2005)."""


# what libraries run -------------------------------------------------------------

SLOTS: Final = 4
"""Candidates of a collective."""
_RINGS: Final = ("ring", "ring", "ring")
_DIRECTS: Final = ("direct", "direct", "direct")
LINK_KINDS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "all_reduce": ("all_reduce", "all_reduce", (*_RINGS, "switch")),
    "all_gather": ("all_gather", "all_gather", _RINGS),
    "reduce_scatter": ("reduce_scatter", "reduce_scatter", _RINGS),
    "all_to_all": ("all_to_all", "all_to_all", _DIRECTS),
    "broadcast": ("broadcast", "all_gather", _RINGS),
    "reduce": ("reduce", "reduce_scatter", _RINGS),
    "scatter": ("scatter", "all_to_all", _DIRECTS),
    "gather": ("gather", "all_to_all", _DIRECTS),
    "send_recv": ("send_recv", "send_recv", _DIRECTS),
    "custom_all_reduce": (
        "all_reduce",
        "custom_all_reduce",
        ("direct", "two_shot", "ring", "switch"),
    ),
}
"""What can be called: the collective, whose constants it has, and the algorithms of its
candidates. Three of one algorithm are NCCL's protocols LL, LL128 and Simple; `custom`
are the all-reduce kernels of serving frameworks, which fall back on NCCL. Broadcast,
reduce, scatter and gather were not measured: they have the constants of the collective
that moves data the same way (assumed)."""
_SPELLINGS: Final = {
    "alltoall": "all_to_all",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "sendrecv": "send_recv",
    "send": "send_recv",
    "recv": "send_recv",
    "p2p": "send_recv",
}
"""Names without `_`."""
_PLAIN: Final = {name.replace("_", ""): name for name in LINK_KINDS}
MEASURED_RANKS: Final = (2.0, 4.0, 8.0)
"""Numbers of GPUs for which the share of the link's rate is known."""
LINK_TAU: Final = 0.05
"""Spread of the choice in ln t."""


def link_kind(collective: str, family: str = "") -> str:
    """Name in `KINDS`; case, `_`, `-` and spaces do not matter.

    A `family` with "custom" or "trtllm" in its name is an all-reduce kernel of a
    serving framework. Raises `ValueError` for an unknown collective.
    """
    word = "".join(c for c in collective.lower() if c.isalnum())
    name = _PLAIN.get(word) or _SPELLINGS.get(word)
    if name is None:
        raise ValueError(
            f"`collective` is '{collective}'; allowed are {', '.join(LINK_KINDS)}; "
            "correct the name."
        )
    custom = any(part in family.lower() for part in ("custom", "trtllm"))
    return "custom_all_reduce" if custom and name == "all_reduce" else name


def _table(which: int) -> np.ndarray:
    """Coefficients (kind, candidate, term) of steps (0) or traffic (1)."""
    rows = np.zeros((len(LINK_KINDS), SLOTS, 3))
    for row, (collective, _, algorithms) in zip(rows, LINK_KINDS.values(), strict=True):
        for slot in range(SLOTS):
            algorithm = algorithms[min(slot, len(algorithms) - 1)]
            row[slot] = GEOMETRY[algorithm, collective][which]
    return rows


_PAIR: Final = list(LINK_KINDS).index("send_recv")
"""Between two GPUs, however many are there."""
_STEPS: Final = _table(0)
_TRAFFIC: Final = _table(1)
_SWITCHED: Final = np.array(
    [[len(x) > slot and x[slot] == "switch" for slot in range(SLOTS)]
     for _, _, x in LINK_KINDS.values()], float
)  # fmt: skip
_BLOCK: Final = np.array(
    [COSTED_COLLECTIVES.index(block) for _, block, _ in LINK_KINDS.values()]
)
"""Row of the constants of a kind."""
_ABSENT: Final = np.array(
    [
        [float(len(x) <= slot) for slot in range(SLOTS)]
        for _, _, x in LINK_KINDS.values()
    ]
)


class Candidates(Record):
    """Ways to run a collective; last axis: candidates."""

    time: Float[Array, "*b slot"]  # s
    traffic: Float[Array, "*b slot"]  # B out of (and into) each GPU
    choice: Float[Array, "*b slot"]  # log prior of the library's choice
    illegal: Float[Array, "*b slot"]  # 1 where it does not exist


def link_costs(gpu: GpuSpec, kind: Int[Array, " kernel"]) -> LinkCosts:
    """Constants of `gpu` for each collective; `kind`: index into `KINDS`."""
    row = as_index(_BLOCK)[kind]
    return jax.tree.map(lambda x: x[row], gpu.links)


def link_candidates(
    kind: Int[Array, "*b"],
    size: Float[Array, "*b"],
    ranks: Float[Array, "*b"],
    narrow: Float[Array, "*b"],
    rate: Float[Array, "*#b"],
    c: LinkCosts,
) -> Candidates:
    """Times of every way to run a collective.

    `kind`: index into `KINDS`; `size`: S, B; `ranks`: GPUs (1: nothing is sent);
    `narrow`: 1 for operands of 8 bits, which switches do not reduce; `rate`: B/s of a
    GPU's link in one direction.
    """
    ranks = jnp.where(kind == _PAIR, jnp.minimum(ranks, 2.0), ranks)
    terms = jnp.stack([jnp.ones_like(ranks), ranks - 1, (ranks - 1) / ranks], -1)
    steps = jnp.einsum("...st,...t->...s", as_float(_STEPS)[kind], terms)
    traffic = jnp.einsum("...st,...t->...s", as_float(_TRAFFIC)[kind], terms)
    alone = jnp.where(ranks > 1, 0.0, 1.0)[..., None]
    sent = traffic * size[..., None] * (1 - alone)
    reached = rate * _share(ranks, c.share)
    x = sent * (1 + c.narrow * narrow)[..., None] / (reached[..., None] * c.relative)
    # the slope of a square root is infinite at nothing sent
    pipeline = c.fill * (jnp.sqrt(x + 1e-15) - jnp.sqrt(1e-15))
    time = c.floor + c.step * steps * (1 - alone) + x + pipeline
    measured = jnp.clip(ranks, MEASURED_RANKS[0], MEASURED_RANKS[-1])  # constant beyond
    bias = c.bias + c.bias_ranks * jnp.log(measured / 4)[..., None]
    switched = as_float(_SWITCHED)[kind]
    banned = switched * (1 - c.switch * (1 - narrow))[..., None]
    illegal = jnp.maximum(as_float(_ABSENT)[kind], banned)
    return Candidates(time, sent, bias / LINK_TAU, illegal)


def _share(ranks: Array, at: Array) -> Array:
    """Share of the link's rate for `ranks` GPUs: linear in log2 n between those that
    were measured, constant beyond."""
    place = jnp.log2(jnp.maximum(ranks, 1.0)) - 1.0
    nodes = jnp.arange(len(MEASURED_RANKS), dtype=place.dtype)
    last = float(len(MEASURED_RANKS) - 1)
    inside = jnp.minimum(jnp.maximum(place, 0.0), last)
    weights = jnp.maximum(1 - jnp.abs(inside[..., None] - nodes), 0.0)
    return jnp.sum(weights * at, -1)


ILLEGAL: Final = 1e3
"""Factor on the time of what cannot run, for its weight alone."""


def weights(
    candidates: Candidates, tau: ArrayLike = LINK_TAU
) -> Float[Array, "*b slot"]:
    """How likely the library takes each candidate, its choice spread by `tau`."""
    believed = candidates.time * (1 + (ILLEGAL - 1) * candidates.illegal)
    spread = jnp.broadcast_to(tau, believed.shape)
    choice = candidates.choice * LINK_TAU / spread
    return smooth.choice_weights(believed, choice, spread)


def expected_time(
    candidates: Candidates, tau: ArrayLike = LINK_TAU
) -> Float[Array, "*b"]:
    """Time under the library's choice, s."""
    return jnp.sum(weights(candidates, tau) * candidates.time, -1)
