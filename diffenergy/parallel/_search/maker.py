"""The pieces that plans share, before they are priced: a layer of each kind and both
ends of the model, as a GPU has them that divides them with others."""

import dataclasses
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Float

from ...plans import Plan, StepPart, Training, exchange_groups, passes_of
from ...workload import Number, Share, Split, TrainedModel
from ...workload.models import Request
from .space import Space

FIRST: Final = 0
LAST: Final = 1
BOTH: Final = 2
"""Places of the ends among the pieces: alone, and on one GPU, where they may share a
table."""
ENDS: Final = 3
"""Where kinds of layers begin."""
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
class Made:
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
        self.software = float(space.held.get("software", Plan().software))
        self.kinds = tuple(self.places.index(x) for x in space.model.kinds)
        self._sizes: dict[tuple[int, ...], np.ndarray | ValueError] = {}
        self._made: dict[tuple[int, Key], Made] = {}
        self._requests: dict[tuple[int, str], Request] = {}
        self._models: dict[tuple[int, ...], list[TrainedModel]] = {}

    def request(self, key: Key) -> Request:
        """What a replica runs of the pieces of a key."""
        same = key.microbatch, key.recompute
        if same not in self._requests:
            space, sequences = self.space, key.microbatch * TIMES
            alone = Plan(
                microbatch=key.microbatch,
                recompute=key.recompute,  # pyright: ignore[reportArgumentType]
                software=self.software,
            )
            training = Training(space.model, alone, space.host, sequences)
            self._requests[same] = training.request(
                phase="train", input_len=space.input_len, **space.request
            )
        return self._requests[same]

    def values(self, key: Key) -> str:
        """Type of values between products."""
        return self.space.model.precision(self.request(key)).values

    def made(self, key: Key) -> list[Made]:
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
            last = len(self.kinds)
            ends = [(3, 0, (0, 0)), (3, 2, (last, last)), (1, None, (0, 0))]
            layers = [(3, 1, (place, place + 1)) for place in self.places]
            split = Split(key.tp, key.ep, key.cp, key.etp, sequence=key.tp > 1)
            models = [
                self.space.model.placed(Share(split, stages, stage, own=(own,)))
                for stages, stage, own in (*ends, *layers)
            ]
            self._models[same] = [x for x in models if isinstance(x, TrainedModel)]
        return self._models[same]

    def _piece(self, place: int, key: Key) -> Made:
        model, request = self._placed(key)[place], self.request(key)
        plan = Plan(key.tp, 1, key.ep, key.ep, key.cp, etp=key.etp)
        shares = exchange_groups(plan, self.space.host)
        parts = passes_of(model, request, shares, self.software)
        left = model.leaves(request)
        return Made(
            tuple(parts),
            _parameters(model),
            (left.each, left.once, left.logits, left.workspace),
        )


def _parameters(model: TrainedModel) -> tuple[Number, Number]:
    """Those that are no routed experts', and those that are."""
    routed = model.expert_parameters()
    return model.text_step_parameters() - routed, routed
