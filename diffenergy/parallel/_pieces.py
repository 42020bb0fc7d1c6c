"""What plans share, priced once for every way in which GPUs divide them.

A virtual stage is the sum of its pieces, so that time, energy and memory of thousands
of plans follow from a few dozen pieces. That is exact but for what is no sum: the
clock under a power limit, and what weights leave in a cache.

Pieces are phases of one workload, and not questions of `at_points`: their kernels
differ, so that hardly two of them would share a program there.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..estimator import packed_alike, run
from ..hardware import GpuSpec, OperatingPoint
from ..plans import (
    STEP_PARTS,
    ExchangeGroup,
    Plan,
    StepPart,
    Training,
    collective_row,
    context_bytes,
    exchange_groups,
    passes_of,
)
from ..workload import (
    Listing,
    ModelShare,
    Number,
    TrainedModel,
    Workload,
    element_bytes,
)
from ..workload.models import Request
from ._space import Space, divisors

# --- The pieces that plans share, before they are priced: a layer of each kind and
# both ends of the model, as a GPU has them that divides them with others.

FIRST: Final = 0
LAST: Final = 1
BOTH: Final = 2
"""Places of the ends among the pieces: alone, and on one GPU, where they may share a
table."""
ENDS: Final = 3
"""Where kinds of layers begin."""
ROUTES: Final = ("dispatch", "hosts", "sequence", "cp_exchange")
"""Keys of a plan that decide how rows reach their experts, and which tokens, keys and
values a GPU of a layer has: the same of all plans."""
STORED: Final = ("moments", "store")
"""Keys of a plan that decide what its GPUs keep: the same of all plans."""
TIMES: Final = 64
"""Micro-batches of a priced piece, so that gradients are summed as in most steps."""


class Key(NamedTuple):
    """What decides the kernels of a piece."""

    tp: int
    cp: int
    ep: int
    etp: int
    microbatch: int
    recompute: str


def key_of(plan: Plan) -> Key:
    """The pieces of a plan."""
    parts = plan.expert_parts
    return Key(plan.tp, plan.cp, plan.ep, parts, plan.microbatch, plan.recompute)


@dataclasses.dataclass(frozen=True)
class Piece:
    """One piece before it is priced."""

    parts: tuple[StepPart, ...]
    sizes: tuple[Number, Number]
    """Parameters: no routed experts', routed experts'."""
    left: tuple[Number, Number, Number, Number]
    """Bytes: `each`, `once`, `logits`, `workspace` of `Pieces`."""


class Maker:
    """Makes the pieces of a space."""

    def __init__(self, space: Space):
        self.space = space
        self.places = sorted(set(space.model.kinds))
        self.software = float(space.fixed.get("software", Plan().software))
        self.kinds = tuple(self.places.index(x) for x in space.model.kinds)
        self._sizes: dict[tuple[int, ...], np.ndarray | ValueError] = {}
        self._pieces: dict[tuple[int, Key], Piece] = {}
        self._requests: dict[tuple[int, str], Request] = {}
        self._models: dict[tuple[int, ...], list[TrainedModel]] = {}
        self.states: dict[Any, list[float]] = {}
        """Bytes of weights, gradients and optimizer, by plan (`state_bytes_of`)."""

    def request(self, key: Key) -> Request:
        """What a replica runs of the pieces of a key."""
        same = key.microbatch, key.recompute
        if same not in self._requests:
            space, sequences = self.space, key.microbatch * TIMES
            alone = Plan(
                microbatch=key.microbatch,
                recompute=key.recompute,
                software=self.software,
                **{x: space.fixed[x] for x in STORED if x in space.fixed},
            )
            training = Training(space.model, alone, space.host, sequences)
            self._requests[same] = training.request(
                phase="train", input_len=space.input_len, **space.request
            )
        return self._requests[same]

    @functools.cached_property
    def values(self) -> str:
        """Type of values that are no product's operands."""
        request = self.request(Key(1, 1, 1, 1, 1, "none"))
        return self.space.model.precision(request).values

    @functools.cached_property
    def width(self) -> float:
        """Bytes of an operand of the products."""
        request = self.request(Key(1, 1, 1, 1, 1, "none"))
        return element_bytes(self.space.model.precision(request).linear)

    def pieces(self, key: Key) -> list[Piece]:
        """Pieces of a key, one that several keys have the same for all of them; raises
        `ValueError` if the model cannot be divided so."""
        pieces = []
        for place, model in enumerate(self._placed(key)):
            relevant = self._relevant(key, place, model)
            if (place, relevant) not in self._pieces:
                self._pieces[place, relevant] = self._piece(place, relevant)
            pieces.append(self._pieces[place, relevant])
        return pieces

    def _relevant(self, key: Key, place: int, model: TrainedModel) -> Key:
        """What of a key a piece depends on."""
        further = model.further_layers and place != FIRST
        if place < ENDS and not further:  # layers alone are run again
            key = key._replace(recompute="none")
        dense = self.space.model.default_routing() is None  # no `ep`, or a mistake
        if dense or model.expert_parameters():
            return key
        return key._replace(ep=1, etp=1)

    def sizes(self, key: Key) -> Float[np.ndarray, "q two"]:
        """Parameters of the pieces, of routed experts the second; raises `ValueError`
        if the model cannot be divided so."""
        same = key.tp, key.cp, key.ep, key.etp
        if same not in self._sizes:
            try:
                models = self._placed(key)
                self._sizes[same] = np.array([_parameters(x) for x in models], float)
            except ValueError as error:
                self._sizes[same] = error
        sizes = self._sizes[same]
        if isinstance(sizes, ValueError):
            raise sizes
        return sizes

    def _placed(self, key: Key) -> list[TrainedModel]:
        """The model as a GPU has each piece."""
        same = key.tp, key.cp, key.ep, key.etp
        if same not in self._models:
            last = len(self.kinds)
            # the ends without layers: at the first and the last of three stages, and
            # both on one
            ends = [(3, 0, (0, 0)), (3, 2, (last, last)), (1, None, (0, 0))]
            layers = [(3, 1, (place, place + 1)) for place in self.places]
            split = self._plan(key).model_split
            models = [
                self.space.model.placed(ModelShare(split, stages, stage, spans=(own,)))
                for stages, stage, own in (*ends, *layers)
            ]
            self._models[same] = [x for x in models if isinstance(x, TrainedModel)]
        return self._models[same]

    def _plan(self, key: Key) -> Plan:
        """A plan of one stage that has the pieces of a key."""
        return Plan(
            *(key.tp, 1, key.ep, key.ep, key.cp),
            etp=key.etp,
            software=self.software,
            **{x: self.space.fixed[x] for x in ROUTES if x in self.space.fixed},
        )

    def _piece(self, place: int, key: Key) -> Piece:
        model, request, plan = (
            self._placed(key)[place],
            self.request(key),
            self._plan(key),
        )
        shares = exchange_groups(plan, self.space.host)
        parts = passes_of(model, model.listings_of(request), shares, plan)
        left = model.saved_activations(request)
        workspace = left.workspace + context_bytes(model, plan, request)
        return Piece(
            tuple(parts),
            _parameters(model),
            (left.each, left.once, left.logits, workspace),
        )


def _parameters(model: TrainedModel) -> tuple[Number, Number]:
    """Those that are no routed experts', and those that are."""
    routed = model.expert_parameters()
    return model.text_step_parameters() - routed, routed


# --- What plans share

_TOGETHER: Final = 1024
"""Listings of one call: as many as pieces of most models have."""
_SIZES: Final = 2.0 ** np.arange(16, 40, 2)
"""Bytes of priced exchanges, between which times are interpolated."""
MOVED: Final = ("all_gather", "reduce_scatter", "send_recv")


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Pieces by key (axis n) and place (q: ends, kinds of layers); P =
    len(`STEP_PARTS`). Computation and its exchanges are of one micro-batch, the
    optimizer's of all parameters."""

    keys: tuple[Key, ...]
    kinds: tuple[int, ...]
    """Kind of each layer, from 0."""
    time: Float[np.ndarray, "n q p"]  # s of kernels
    host: Float[np.ndarray, "n q p"]  # s of the host, but for what a pass costs it
    energy: Float[np.ndarray, "n q p"]  # J beyond static power
    still: Float[np.ndarray, "n q p"]  # J of static power while kernels run
    eager: Float[np.ndarray, " p"]
    """1 for parts that the host launches one by one."""
    far: Float[np.ndarray, "n q p"]  # bytes between hosts
    hops: Float[np.ndarray, "n q p"]
    dense: Float[np.ndarray, "n q"]  # parameters that are no routed experts'
    routed: Float[np.ndarray, "n q"]
    each: Float[np.ndarray, "n q"]  # bytes that a micro-batch in flight leaves
    once: Float[np.ndarray, "n q"]
    logits: Float[np.ndarray, "n q"]
    workspace: Float[np.ndarray, "n q"]
    moved: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]
    """(s, J beyond static power) at `_SIZES`, by collective and GPUs in a host."""

    def exchange(
        self, kind: str, local: int, size: Float[np.ndarray, "*n"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(s, J) of a collective of `size` bytes among GPUs of one host."""
        if local == 1:
            return np.zeros_like(size), np.zeros_like(size)
        both = (np.interp(size, _SIZES, x) for x in self.moved[kind, local])
        time, energy = (np.where(size > 0, x, 0.0) for x in both)
        return time, energy


def figures(
    workload: Workload, gpu: GpuSpec, point: OperatingPoint, number: int
) -> dict[str, np.ndarray]:
    """Figures of the first `number` phases at `point` (see `run`): `time`, of the `gpu`
    and of the `host`, s; `energy` beyond static power, and `still` of it, J;
    `feasible`, whether the power limit is kept."""
    p: Any = run(workload, gpu, point, number).phases
    still = p.static_energy
    return dict(
        time=p.time,
        gpu=p.gpu_time,
        host=p.host_time,
        energy=p.energy - still,
        still=still,
        feasible=p.feasible,
    )


def price(
    maker: Maker,
    pieces: dict[Key, list[Piece]],
    gpu: GpuSpec,
    points: Sequence[OperatingPoint],
) -> tuple[list[Pieces], Workload]:
    """All pieces at each of `points` (of all), and a workload of those that they were
    priced as."""
    launched, table = _table(pieces, len(maker.kinds), max(maker.kinds))
    moves = [(kind, local) for kind in MOVED for local in _together(maker.space)]
    exchanges = [_exchange(launched[0], *x, size) for x in moves for size in _SIZES]
    listings = [*launched, *exchanges]
    each = np.ones(len(STEP_PARTS)) * TIMES
    each[STEP_PARTS.index("optimizer")] = 1.0
    about = _about(pieces) | {
        "keys": tuple(pieces),
        "kinds": maker.kinds,
        "eager": table["eager"],
        "far": table["far"] / each,
        "hops": table["hops"] / each,
    }
    each_pass = float(gpu.corrections.dispatch_pass)
    first, same = distinct(listings)
    works = packed_alike([listings[i] for i in first], _TOGETHER)
    result = []
    for point in points:
        dealt = _dealt(works, gpu, point, len(first))
        priced = {name: x[same] for name, x in dealt.items()}
        columns = {"time": priced["gpu"], "host": priced["host"]}
        columns |= {"energy": priced["energy"]}
        # static power while kernels run; waits for the host are those of whole stages
        columns |= {"still": priced["still"] * priced["gpu"] / priced["time"]}
        grid = {
            x: y[len(launched) :].reshape(-1, len(_SIZES)) for x, y in columns.items()
        }
        moved = {x: (grid["time"][i], grid["energy"][i]) for i, x in enumerate(moves)}
        at = table["phase"]
        of_pieces: dict[str, Any] = {
            x: np.where(at >= 0, y[at], 0.0) / each for x, y in columns.items()
        }
        # A pass costs the host once, not for every piece: `_dispatched` adds it to a
        # stage.
        of_pieces["host"] -= each_pass * table["passes"] / each
        result.append(Pieces(**about, **of_pieces, moved=moved))
    return result, works[0]


def _table(
    pieces_of: Mapping[Key, list[Piece]], layers: int, last: int
) -> tuple[list[Listing], dict[str, np.ndarray]]:
    """What pieces of a model of so many `layers` launch, the kinds up to `last`; one
    that several keys have stands once. By [key, place, part]: its `phase` among the
    listings (-1: none), bytes `far`, `hops`, `passes` whose start the host takes time
    for; by part: whether it is `eager`."""
    shape = (len(pieces_of), ENDS + 1 + last, len(STEP_PARTS))
    phase, (far, hops, passes) = np.full(shape, -1), np.zeros((3, *shape))
    eager, listings = np.zeros(len(STEP_PARTS)), list[Listing]()
    places: dict[int, tuple[int, int]] = {}
    for i, pieces in enumerate(pieces_of.values()):
        for j, piece in enumerate(pieces):
            if id(piece) in places:
                for x in (phase, far, hops, passes):
                    x[i, j] = x[places[id(piece)]]
                continue
            places[id(piece)] = i, j
            for part in piece.parts:
                at = STEP_PARTS.index(part.name)
                far[i, j, at], hops[i, j, at] = part.far, part.hops
                if part.listing is None:
                    continue
                phase[i, j, at] = len(listings)
                one_by_one = part.listing.dispatch != "graph"
                eager[at] = max(eager[at], one_by_one)
                # a weight comes back when all layers have run, not after its own
                per_layer = part.listing.passes / (layers if j >= ENDS else 1)
                listings.append(dataclasses.replace(part.listing, passes=per_layer))
                passes[i, j, at] = per_layer * one_by_one
    return listings, dict(phase=phase, far=far, hops=hops, passes=passes, eager=eager)


def _about(pieces: Mapping[Key, list[Piece]]) -> dict[str, Any]:
    """Parameters and bytes of the pieces, [key, place]."""
    sizes, left = (
        np.array(
            [[getattr(piece, name) for piece in x] for x in pieces.values()], float
        )
        for name in ("sizes", "left")
    )
    names = ("dense", "routed", "each", "once", "logits", "workspace")
    both = np.concatenate([sizes, left], axis=-1)
    return {name: both[..., i] for i, name in enumerate(names)}


def distinct(
    listings: Sequence[Listing], clocks: Float[np.ndarray, "n c"] | None = None
) -> tuple[list[int], Int[np.ndarray, " n"]]:
    """(place of each listing that equals none before, which of these each one is);
    equal ones have the same `clocks`, too."""
    numbers: dict[Any, int] = {}
    first, same = [], np.zeros(len(listings), int)
    at = [()] * len(listings) if clocks is None else map(tuple, clocks.tolist())
    for i, (x, clock) in enumerate(zip(listings, at, strict=True)):
        kernels = tuple(tuple(kernel.items()) for kernel in x.kernels)
        host = x.passes, x.module_calls, x.dispatch
        about = kernels, host, x.training, x.age, clock
        same[i] = numbers.setdefault(about, len(numbers))
        if len(numbers) > len(first):
            first.append(i)
    return first, same


def _dealt(
    works: Sequence[Workload], gpu: GpuSpec, point: OperatingPoint, number: int
) -> dict[str, np.ndarray]:
    """Figures of `number` listings that were dealt in turn (`packed_alike`)."""
    columns: dict[str, np.ndarray] = {}
    for i, work in enumerate(works):
        part = figures(work, gpu, point, len(range(i, number, len(works))))
        for name, x in part.items():
            columns.setdefault(name, np.empty(number, x.dtype))[i :: len(works)] = x
    return columns


def _together(space: Space) -> list[int]:
    """How many GPUs of a group can be in one host."""
    size = space.host.size
    some = {x for n in space.num_gpus for x in divisors(n) if x <= size}
    stages = {2 for n in space.num_gpus if n <= size}  # neighbours in a pipeline
    return sorted((some | stages | {size // x for x in some}) - {1})


def _exchange(blank: Listing, kind: str, local: int, size: float) -> Listing:
    rows = collective_row(kind, float(size), ExchangeGroup(local, local), "bf16").rows
    return dataclasses.replace(blank, kernels=rows, module_calls=0, dispatch="graph")
