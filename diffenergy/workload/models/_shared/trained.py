"""Language models that train: operators, weights and memory of a training step."""

import abc
import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..._kernel import Kernel, Number, finished
from ..._listing import Listing
from .._layers.drafting import mtp_layer, mtp_layers
from .._layers.layer import Halves, Layer
from .._network.linear_layer import Linear
from .._network.operators import Fixed, ForwardPass, Norm, Residual, Trainable
from .._network.parts import adapted, frozen, trained_weights
from .._network.sharding import Columns
from .._network.step import (
    Kind,
    Loss,
    Network,
    backward,
    check_frozen,
    forward,
    kept,
    logits,
    training_listings,
)
from .._request import Request, length_of
from .formats import Precision, precision_of
from .language_model import LanguageModel
from .memory import (
    CONTEXT,
    Weights,
    bytes_of,
    element_bytes,
    memory_by_part,
    number_of,
    trained,
    working_bytes,
)


@dataclasses.dataclass(frozen=True)
class SavedActivations:
    """Bytes that a micro-batch of a training step leaves for its backward pass: `each`
    for every one in flight, `once` for the layer that runs again, `logits`;
    `workspace`: the context and the gradients of a layer's operands."""

    each: float
    once: float
    logits: float
    workspace: float


@dataclasses.dataclass(frozen=True)
class TrainingWeights:
    """Weights of a GPU in a training step: parameters that have a gradient (`trained`,
    adapters among them), and bytes of those that have none (`frozen`), which are in the
    type of their products. Of each how much is of routed experts and of the largest
    layer, of which `layer` is all bytes."""

    trained: Number
    trained_experts: Number
    trained_layer: Number
    layer: float
    frozen: float = 0.0
    frozen_experts: float = 0.0
    frozen_layer: float = 0.0


@dataclasses.dataclass(frozen=True)
class TrainedModel(LanguageModel):
    """A causal language model that trains, layer by layer."""

    @abc.abstractmethod
    def halves(self, run: ForwardPass) -> Sequence[Halves]:
        """Operators of all layers in training, first to last."""

    @property
    def trains(self) -> bool:
        """Whether its training step is known."""
        return True

    @functools.cached_property
    def kinds(self) -> tuple[int, ...]:
        """Of every layer the place of the first one like it."""
        first: dict[Layer, int] = {}
        return tuple(first.setdefault(x, i) for i, x in enumerate(self.stack()))

    def _check(self, values: dict[str, Any]):
        super()._check(values)
        check_frozen(values, self.name, len(self.stack()))
        if values.get("lora") and self.default_routing():
            raise ValueError(
                f"`lora` is {values['lora']}, but {self.name} has experts, whose "
                "adapters are not known; leave it out or take `--frozen-layers`."
            )

    def listings_of(self, request: Request) -> list[Listing]:
        if request.phase != "train":
            return super().listings_of(request)
        run = self.training_run(request)
        network = self._trained_network(request, run)
        passes = forward(network, run), backward(network, run)
        held, share = self.held(request), self.share
        rest = math.ceil((held.trained - held.trained_experts) / share.shards)
        optimized = rest + math.ceil(held.trained_experts / share.expert_shards)
        own, trained = network.layers / network.number, held.trained
        return training_listings(self, passes, request, run, trained, optimized, own)

    def _trained_network(self, request: Request, run: ForwardPass) -> Network:
        """Operators of a training step: some without gradients of their weights, or
        with adapters. A head that is the embedding's table is frozen with it."""
        network = self.network(run)
        if not (request.lora or request.frozen_layers):
            return network
        ends = network.ends
        network = dataclasses.replace(
            network, inputs=tuple(frozen(x) for x in network.inputs)
        )
        if request.lora:
            single = self.network(dataclasses.replace(run, fused=False)).kinds
            rank, which = request.lora, request.lora_layers
            kinds = tuple(
                dataclasses.replace(x, body=adapted(x.body, rank, y.body, which))
                for x, y in zip(network.kinds, single, strict=True)
            )
            return dataclasses.replace(
                network,
                norm=frozen(network.norm),
                kinds=kinds,
                ends=tuple(frozen(x) for x in ends),
                further=(),
            )
        if ends and not self.own_head:
            norm, head, loss = ends
            ends = (norm, frozen(head), loss)
        table = frozen(self._table)
        further = tuple(
            dataclasses.replace(x, inputs=(table, *x.inputs[1:]))
            for x in network.further
        )
        stopped = request.frozen_layers or 0
        return dataclasses.replace(network, ends=ends, frozen=stopped, further=further)

    def held(self, request: Request) -> TrainingWeights:
        """Weights of this GPU in a training step."""
        p, layer = self.precision(request), self._largest_layer()
        e = element_bytes(p.values)
        if not (request.lora or request.frozen_layers):
            whole, own = self.step_parameters(), number_of(layer)
            return TrainingWeights(whole, self.expert_parameters(), own, own * e)
        network = self._trained_network(request, self.training_run(request))
        every = [(w, 1) for w in trained_weights(network.ends)]
        every += [] if request.lora else self.further_weights()
        own = 0
        for kind in network.kinds:
            weights = trained_weights((network.norm, *kind.body))
            if times := kind.trained(network.frozen):
                every += [(w, times) for w in weights]
                own = max(own, sum(w.number for w in weights))
        still = bytes_of(layer, p)
        beside = self.step_parameters() - self.text_step_parameters()
        published = [*self.trained_weights(), (Weights(beside), 1)]
        # adapters stand beside published weights, none of which is trained then
        moving = [] if request.lora else every
        return TrainingWeights(
            number_of(every),
            number_of(_routed(every)),
            own,
            still + own * e if request.lora else max(still, own * e),
            bytes_of(published, p) - bytes_of(moving, p),
            bytes_of(_routed(published), p) - bytes_of(_routed(moving), p),
            still,
        )

    def precision(self, request: Request) -> Precision:
        """Products of a training step are in its type, however a checkpoint is
        stored."""
        if request.phase != "train":
            return super().precision(request)
        return precision_of(request.dtype, request.kv_dtype)

    def training_run(self, request: Request) -> ForwardPass:
        """A micro-batch of a training step on one GPU.

        Raises `ValueError` for tokens that the GPUs of a plan cannot share.
        """
        split, length = self.share.split, length_of(request)
        if split.cp > 1 and (length % (2 * split.cp) or request.attention != "flash"):
            raise ValueError(
                f"`cp` is {split.cp}, which needs attention 'flash' and an `input_len` "
                f"that {2 * split.cp} divides (two parts a GPU), but these are "
                f"'{request.attention}' and {length}."
            )
        tokens = request.batch * length // split.cp
        routed = self.default_routing() is not None
        if tokens % (split.tp if routed else split.parts):
            raise ValueError(
                f"`tp` is {split.tp}, which does not divide the {tokens} tokens of a "
                "micro-batch; take other sequences or fewer GPUs a layer."
            )
        seen = length if split.cp == 1 else length // 2
        run = self.run(request, length // split.cp, seen)
        return dataclasses.replace(run, train=True, cp=split.cp)

    @property
    def further_layers(self) -> int:
        """Layers of its own with which it learns tokens beyond the next, as its config
        states them (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
        return mtp_layers(self.config)

    def further_weights(self) -> list[tuple[Weights, int]]:
        """Their weights and how often they occur; a last stage that is not the first
        has the table once more. The head is that of the model."""
        number = self.further_layers if self.share.is_last else 0
        if not number:
            return []
        own = mtp_layer(self.hidden, self.stack()[-1]).shard(self.share.split)
        norms = [(w, own.norms + 1) for w in self._norm.weights()]
        found = [(w, n * number) for w, n in (*own.all_weights(), *norms)]
        held = self.share.is_first or not self.own_head
        return found if held else [*found, *((w, 1) for w in self._table.weights())]

    def trained_weights(self) -> list[tuple[Weights, int]]:
        """Weights of a training step and how often they occur, without towers."""
        return [*self.all_weights(), *self.further_weights()]

    def _largest_layer(self) -> list[tuple[Weights, int]]:
        """Weights of the largest layer as this GPU has it."""
        norm = [(w, 1) for w in self._norm.weights()]
        several = {id(x): x for x in self.stack()}.values()  # hashing each takes longer
        layers = (layer.shard(self.share.split) for layer in several)
        return max((x.all_weights() + x.norms * norm for x in layers), key=number_of)

    def expert_parameters(self) -> int:
        """Parameters of routed experts in a training step."""
        return number_of(_routed(self.trained_weights()))

    def text_step_parameters(self) -> int:
        """Parameters of a training step without those of a vision tower."""
        return number_of(self.trained_weights())

    def step_parameters(self) -> int:
        """Parameters of a training step: published ones and those of further layers."""
        return self.text_step_parameters() + self.parameters() - self.text_parameters()

    def memory(self, request: Request) -> dict[str, float]:
        """In training what a micro-batch leaves for its gradients beside AdamW's
        state."""
        if request.phase != "train":
            return super().memory(request)
        left, held = self.leaves(request), self.held(request)
        return memory_by_part(
            **trained(held.trained, self.precision(request).values, held.frozen),
            activations=left.each + left.once,
            logits=left.logits,
            workspace=left.workspace,
        )

    def leaves(self, request: Request, **changed: Any) -> SavedActivations:
        """What a micro-batch of a training step leaves in the memory of this GPU;
        `changed`: fields of its `ForwardPass`."""
        run = dataclasses.replace(self.training_run(request), **changed)
        network = self._trained_network(request, run)
        each, once = kept(network, run)
        body = self._pass(dataclasses.replace(request, base=True), *2 * (run.q_len,))
        working = working_bytes(finished(body, self.name))  # their gradients
        return SavedActivations(each, once, logits(network, run), CONTEXT + working)

    @property
    def _norm(self) -> Norm:
        """The norm of the width of a layer."""
        return Norm(self.norm, self.hidden, shifted=self.norm_bias)

    def tables(self, run: ForwardPass) -> list[Kernel]:
        """Masks or angles that an eager pass makes before its layers."""
        return []

    def network(self, run: ForwardPass) -> Network:
        """Operators of a training step."""
        h, share, halves = self.hidden, self.share, self.halves(run)
        split = share.split
        norm: Norm = Norm(self.norm, h).shard(split)
        skip = Residual(h).shard(split)

        def body(half: Halves) -> tuple[Trainable, ...]:
            before, behind = (Layer(x).shard(split).operators for x in half)
            found: Any = (*before, skip, norm, *behind, skip)
            return found

        places: dict[Halves, list[int]] = {}
        for place in share.layers(len(halves)):
            places.setdefault(halves[place], []).append(place)
        head = dataclasses.replace(self.head, split=Columns(), among=split)
        ends = (norm, head, Loss(head.outputs, split.tp))
        inputs = (self._table, Fixed(() if run.fused else self.tables(run)))
        network = Network(
            inputs=inputs if share.is_first else (),
            norm=norm,
            kinds=tuple(Kind(body(x), tuple(at)) for x, at in places.items()),
            skip=skip,
            number=len(halves),
            ends=ends if share.is_last else (),
        )
        number = self.further_layers if share.is_last else 0
        if not number:
            return network
        alone = dataclasses.replace(norm, residual=False)
        joint = Linear(h, 2 * h).shard(split)
        beyond = dataclasses.replace(
            network,
            inputs=(self._table, alone, alone, joint),
            kinds=(Kind(body(halves[-1]), (len(halves),)),),
        )
        return dataclasses.replace(network, further=number * (beyond,))


def _routed(weights: Iterable[tuple[Weights, int]]) -> list[tuple[Weights, int]]:
    """Those of routed experts."""
    return [(w, n) for w, n in weights if w.used < 1]
