"""What plans share: a layer of each kind and both ends of the model on a GPU, priced
once for every way in which GPUs divide them.

A virtual stage is the sum of its pieces, so that time, energy and memory of thousands
of plans follow from a few dozen pieces. That is exact but for what is no sum: the
clock under a power limit, and what weights leave in a cache.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...estimator._packed import packed_alike, run
from ...hardware import GpuSpec, OperatingPoint
from ...physics._power import STATIC
from ...plans import Plan, Training
from ...plans._exchange import Group, collective, groups
from ...plans._steps import PARTS
from ...plans._training import Part, passes_of
from ...workload import Listing, Workload
from ...workload._listing import Number
from ...workload._unlisted import complete
from ...workload.models import Request
from ...workload.models._network.sharding import Share, Split
from ...workload.models._shared.trained import TrainedModel
from .space import Space

FIRST: Final = 0
LAST: Final = 1
BOTH: Final = 2
"""Places of the ends among the pieces: alone, and on one GPU, where they may share a
table."""
ENDS: Final = 3
"""Where kinds of layers begin."""
_TIMES: Final = 64
"""Micro-batches of a priced piece, so that gradients are summed as in most steps."""
_TOGETHER: Final = 1024
"""Listings of one call: as many as pieces of most models have."""
_SIZES: Final = 2.0 ** np.arange(16, 40, 2)
"""Bytes of priced exchanges, between which times are interpolated."""
MOVED: Final = ("all_gather", "reduce_scatter", "send_recv")


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
class Pieces:
    """Pieces by key (axis n) and place (q: ends, kinds of layers); P = len(`PARTS`).
    Computation and its exchanges are of one micro-batch, the optimizer's
    of all parameters."""

    keys: tuple[Key, ...]
    kinds: tuple[int, ...]
    """Kind of each layer, from 0."""
    values: str
    """Type of values that are no product's operands."""
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


@dataclasses.dataclass(frozen=True)
class _Made:
    """One piece before it is priced."""

    parts: tuple[Part, ...]
    sizes: tuple[Number, Number]
    left: tuple[Number, Number, Number, Number]


class Maker:
    """Makes the pieces of a space."""

    def __init__(self, space: Space):
        self.space = space
        self.places = sorted(set(space.model.kinds))
        self.kinds = tuple(self.places.index(x) for x in space.model.kinds)
        self._sizes: dict[tuple[int, ...], np.ndarray | ValueError] = {}
        self._made: dict[tuple[int, Key], _Made] = {}
        self._requests: dict[tuple[int, str], Request] = {}
        self._models: dict[tuple[int, ...], list[TrainedModel]] = {}

    def request(self, key: Key) -> Request:
        """What a replica runs of the pieces of a key."""
        same = key.microbatch, key.recompute
        if same not in self._requests:
            self._requests[same] = self._request(key)
        return self._requests[same]

    def _request(self, key: Key) -> Request:
        space = self.space
        alone = Plan(microbatch=key.microbatch, recompute=key.recompute)  # pyright: ignore[reportArgumentType]
        alone = dataclasses.replace(alone, software=_software(space))
        sequences = key.microbatch * _TIMES
        training = Training(space.model, alone, space.host, sequences)
        length = space.input_len
        return training.request(phase="train", input_len=length, **space.request)

    def values(self, key: Key) -> str:
        """Type of values between products."""
        model = self.space.model
        assert isinstance(model, TrainedModel)
        return model.precision(self.request(key)).values

    def made(self, key: Key) -> list[_Made]:
        """Pieces of a key, one that several keys have the same for all of them; raises
        `ValueError` if the model cannot be divided so."""
        found = []
        for place, model in enumerate(self._placed(key)):
            own = self._own(key, place, model)
            if (place, own) not in self._made:
                self._made[place, own] = self._piece(place, own)
            found.append(self._made[place, own])
        return found

    def _own(self, key: Key, place: int, model: TrainedModel) -> Key:
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
        found = self._sizes[same]
        if isinstance(found, ValueError):
            raise found
        return found

    def _placed(self, key: Key) -> list[TrainedModel]:
        """The model as a GPU has each piece."""
        same = key.tp, key.cp, key.ep, key.etp
        if same not in self._models:
            self._models[same] = self._divided(key)
        return self._models[same]

    def _divided(self, key: Key) -> list[TrainedModel]:
        last = len(self.kinds)
        ends = [(3, 0, (0, 0)), (3, 2, (last, last)), (1, None, (0, 0))]
        layers = [(3, 1, (place, place + 1)) for place in self.places]
        split = Split(key.tp, key.ep, key.cp, key.etp, sequence=key.tp > 1)
        shares = [
            Share(split, stages, stage, own=(own,))
            for stages, stage, own in (*ends, *layers)
        ]
        models = [self.space.model.placed(share) for share in shares]
        return [x for x in models if isinstance(x, TrainedModel)]

    def _piece(self, place: int, key: Key) -> _Made:
        model, request = self._placed(key)[place], self.request(key)
        plan = Plan(key.tp, 1, key.ep, key.ep, key.cp, etp=key.etp)
        shares = groups(plan, self.space.host)
        parts = passes_of(model, request, shares, _software(self.space))
        left = model.leaves(request)
        return _Made(
            tuple(parts),
            _parameters(model),
            (left.each, left.once, left.logits, left.workspace),
        )


def _parameters(model: TrainedModel) -> tuple[Number, Number]:
    """Those that are no routed experts', and those that are."""
    routed = model.expert_parameters()
    return model.text_step_parameters() - routed, routed


def _software(space: Space) -> float:
    return float(space.held.get("software", Plan().software))


def figures(
    workload: Workload, gpu: GpuSpec, point: OperatingPoint, number: int
) -> dict[str, np.ndarray]:
    """Figures of the first `number` phases at `point` (see `run`): `time`, of the `gpu`
    and of the `host`, s; `energy` beyond static power, and `still` of it, J;
    `feasible`, whether the power limit is kept."""
    p: Any = run(workload, gpu, point, number).phases
    still = p.components[:, STATIC].sum(axis=1)
    return dict(
        time=p.time,
        gpu=p.gpu_time,
        host=p.host_time,
        energy=p.energy - still,
        still=still,
        feasible=p.feasible,
    )


def price(
    space: Space,
    made: dict[Key, list[_Made]],
    gpu: GpuSpec,
    points: Sequence[OperatingPoint],
) -> tuple[list[Pieces], Workload]:
    """All pieces at each of `points` (of all), and a workload of those that they were
    priced as."""
    listings: list[Listing] = []
    kinds = Maker(space).kinds
    shape = (len(made), ENDS + 1 + max(kinds), len(PARTS))
    phase, far, hops = np.full(shape, -1), np.zeros(shape), np.zeros(shape)
    eager, passes = np.zeros(len(PARTS)), np.zeros(shape)
    priced_at: dict[int, tuple[int, int]] = {}
    tables = (phase, far, hops, passes)
    for i, pieces in enumerate(made.values()):
        for j, piece in enumerate(pieces):
            if id(piece) in priced_at:
                for x in tables:
                    x[i, j] = x[priced_at[id(piece)]]
                continue
            priced_at[id(piece)] = i, j
            for part in piece.parts:
                at = PARTS.index(part.name)
                far[i, j, at], hops[i, j, at] = part.far, part.hops
                if part.listing is None:
                    continue
                phase[i, j, at] = len(listings)
                eager[at] = max(eager[at], part.listing.dispatch != "graph")
                # a weight comes back when all layers have run, not after its own
                own = part.listing.passes / (len(kinds) if j >= ENDS else 1)
                whole = dataclasses.replace(part.listing, passes=own)
                listings.append(complete(whole))
                passes[i, j, at] = own * (part.listing.dispatch != "graph")
    moves = [(kind, local) for kind in MOVED for local in _together(space)]
    own = len(listings)
    listings += [_exchange(listings[0], *x, size) for x in moves for size in _SIZES]
    each = np.ones(len(PARTS)) * _TIMES
    each[PARTS.index("optimizer")] = 1.0
    sizes, left = (
        np.array([[getattr(piece, name) for piece in x] for x in made.values()], float)
        for name in ("sizes", "left")
    )
    first, same = _distinct(listings)
    works = packed_alike([listings[i] for i in first], _TOGETHER)
    result = []
    for point in points:
        dealt = _dealt(works, gpu, point, len(first))
        found = {name: x[same] for name, x in dealt.items()}
        columns = {"time": found["gpu"], "host": found["host"]}
        columns |= {"energy": found["energy"]}
        columns |= {"still": found["still"] * found["gpu"] / found["time"]}
        grid = {x: y[own:].reshape(-1, len(_SIZES)) for x, y in columns.items()}
        table = {x: (grid["time"][i], grid["energy"][i]) for i, x in enumerate(moves)}
        of_pieces = {
            x: np.where(phase >= 0, y[phase], 0.0) / each for x, y in columns.items()
        }
        each_pass = float(gpu.corrections.dispatch_pass)
        of_pieces["host"] -= each_pass * passes / each
        result.append(
            Pieces(
                tuple(made),
                kinds,
                Maker(space).values(next(iter(made))),
                **of_pieces,
                eager=eager,
                far=far / each,
                hops=hops / each,
                dense=sizes[..., 0],
                routed=sizes[..., 1],
                each=left[..., 0],
                once=left[..., 1],
                logits=left[..., 2],
                workspace=left[..., 3],
                moved=table,
            )
        )
    return result, works[0]


def _distinct(
    listings: Sequence[Listing],
) -> tuple[list[int], Int[np.ndarray, " n"]]:
    """(place of each listing that none before equals, which of these each one is)."""
    seen: dict[Any, int] = {}
    first, same = [], np.zeros(len(listings), int)
    for i, x in enumerate(listings):
        kernels = tuple(tuple(kernel.items()) for kernel in x.kernels)
        host = x.passes, x.module_calls, x.dispatch
        about = kernels, host, x.training, x.age
        same[i] = seen.setdefault(about, len(seen))
        if len(seen) > len(first):
            first.append(i)
    return first, same


def _dealt(
    works: Sequence[Workload], gpu: GpuSpec, point: OperatingPoint, number: int
) -> dict[str, np.ndarray]:
    """Figures of `number` listings that were dealt in turn (`packed_alike`)."""
    found: dict[str, np.ndarray] = {}
    for i, work in enumerate(works):
        part = figures(work, gpu, point, len(range(i, number, len(works))))
        for name, x in part.items():
            found.setdefault(name, np.empty(number, x.dtype))[i :: len(works)] = x
    return found


def _together(space: Space) -> list[int]:
    """How many GPUs of a group can be in one host."""
    size = space.host.size
    some = {x for n in space.num_gpus for x in range(1, n + 1) if n % x == 0}
    found = {x for x in some if x <= size} | {size // x for x in some if x <= size}
    return sorted(found - {1})


def _exchange(blank: Listing, kind: str, local: int, size: float) -> Listing:
    rows = collective(kind, float(size), Group(local, local), "bf16").rows
    return dataclasses.replace(blank, kernels=rows, module_calls=0, dispatch="graph")
