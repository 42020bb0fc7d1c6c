"""Language models of layers: operators, weights and memory of a training step, and the
pass of Hugging Face modules, which is the same operators' forward pass."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from .._kernel import Kernel, Number, finished
from .._listing import Listing
from ._checkpoint.config import Config, positions
from ._checkpoint.formats import Precision, precision_of
from ._language_model import LanguageModel
from ._layer import Layer
from ._operators.attention import Attention
from ._operators.experts import Experts
from ._operators.linear import Linear
from ._operators.memory import (
    CONTEXT,
    Weights,
    bytes_of,
    element_bytes,
    memory_by_part,
    number_of,
    trained,
    working_bytes,
)
from ._operators.operator import Angles, ForwardPass, Norm, Residual, Trainable
from ._operators.partial import frozen
from ._operators.sharding import Columns
from ._request import Request, length_of
from ._speculation import mtp_layer, mtp_layers
from ._stack import Block, Stack
from ._step import Loss, check_frozen, training_listings

_SERVED: Final = "only prefill, decode, generate and forward"
_ROUND: Final = 3
"""Modules around all layers: the model, the look-up, the last norm."""
_HEAD: Final = 2
"""Those of a head: itself and what holds it and the model."""


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
    """A causal language model that serves; that trains, and that runs as modules do,
    where all of its layers do."""

    @functools.cached_property
    def trains(self) -> bool:
        """Whether its training step is known."""
        return None not in (x.in_training() for x in dict.fromkeys(self.blocks))

    @functools.cached_property
    def _fused(self) -> list[Trainable]:
        """Operators that are known as fused kernels alone."""
        parts = (y for x in dict.fromkeys(self.blocks) for y in x.in_training() or ())
        return [x for part in parts for x in part if not x.unfused]

    def module_calls(self, base: bool) -> int:
        head = 0 if base else _HEAD
        if self.modules:
            layer, around, own = self.modules
            return self.layers * layer + around + (0 if base else own)
        inside = sum(x.modules for x in self.blocks)
        return inside + _ROUND + len(self._angles) + head

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
        train = values["phase"] == "train"
        by_experts = self.trains and all(isinstance(x, Experts) for x in self._fused)
        what = "experts" if by_experts else "kernels"
        apart = self.trains and not self._fused
        for key, value, wrong, has in (
            ("stack", "eager", not apart, f"only serving (fused {what})"),
            ("phase", "train", not self.trains, _SERVED),
            ("attention", "eager", train and not by_experts,
             "fused attention alone in training"),
            ("lora", values.get("lora"), train and not apart,
             "no adapters that are known"),
        ):  # fmt: skip
            if wrong and value is not None and values.get(key) == value:
                raise ValueError(
                    f"`{key}` is {value!r}, but {self.name} has {has}; a kernel "
                    "listing can say otherwise."
                )

    def listings_of(self, request: Request) -> list[Listing]:
        if request.phase != "train":
            return super().listings_of(request)
        run = self.training_run(request)
        network = self._trained_network(request)
        passes = network.forward(run), network.backward(run)
        held, share = self.held(request), self.share
        rest = math.ceil((held.trained - held.trained_experts) / share.shards)
        optimized = rest + math.ceil(held.trained_experts / share.expert_shards)
        own, trained = network.layers / self.layers, held.trained
        return training_listings(self, passes, request, run, trained, optimized, own)

    def _modules_pass(self, run: ForwardPass, base: bool) -> list[Kernel]:
        network = dataclasses.replace(self.network, loss=None, further=())
        if base and self.share.is_last:
            *before, end = network.blocks
            end = dataclasses.replace(end, operators=end.operators[:1])
            network = dataclasses.replace(network, blocks=(*before, end))
        return network.forward(run)

    def _trained_network(self, request: Request) -> Stack:
        """Operators of a training step: some without gradients of their weights, or
        with adapters. A head that is the embedding's table is frozen with it."""
        network, stopped = self.network, request.frozen_layers or 0
        if request.lora:
            network = network.adapted(request.lora, request.lora_layers, head=False)
            return dataclasses.replace(network, further=())
        if not stopped:
            return network
        further = tuple(_with_frozen(x, 0, 0) for x in network.further)
        if self.share.is_last and self.tied:
            network = _with_frozen(network, -1, 1)
        return dataclasses.replace(network, frozen=stopped, further=further)

    def held(self, request: Request) -> TrainingWeights:
        """Weights of this GPU in a training step."""
        p, layer = self.precision(request), self._largest_layer()
        e = element_bytes(p.values)
        if not (request.lora or request.frozen_layers):
            whole, own = self.step_parameters(), number_of(layer)
            return TrainingWeights(whole, self.expert_parameters(), own, own * e)
        network = self._trained_network(request)
        every = network.trained_weights
        every += [] if request.lora else self.further_weights()
        own = network.largest_trained_layer()
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
        network = self._trained_network(request)
        each, once = network.kept(run)
        body = self._pass(dataclasses.replace(request, base=True), *2 * (run.q_len,))
        working = working_bytes(finished(body, self.name))  # their gradients
        return SavedActivations(each, once, network.logits(run), CONTEXT + working)

    @property
    def _norm(self) -> Norm:
        """The norm of the width of a layer."""
        return Norm(self.norm, self.hidden, shifted=self.norm_bias)

    @property
    def _angles(self) -> list[Angles]:
        """Tables of rotary positions, one for each width of the heads."""
        mixers = (x for layer in dict.fromkeys(self.blocks) for x in layer.operators)
        rotary = [x for x in mixers if isinstance(x, Attention) and x.rotary]
        return [Angles(x) for x in dict.fromkeys(x.layout.head_dim for x in rotary)]

    @functools.cached_property
    def network(self) -> Stack:
        """Operators of a training step."""
        h, share, layers = self.hidden, self.share, self.blocks
        split = share.split
        norm: Norm = self._norm.shard(split)
        alone = dataclasses.replace(norm, residual=False)
        skip = Residual(h).shard(split)

        @functools.cache
        def body(layer: Layer) -> tuple[Trainable, ...]:
            behind = (alone,) if layer.normed_behind else ()
            found: list[Any] = []
            for part in layer.in_training() or ():
                own = Layer(part).shard(split).operators
                found += (norm, *own, *behind, skip)
            return tuple(found)

        same: dict[int, list[int]] = {}  # by identity: hashes of layers take long
        for place in share.layers(len(layers)):
            same.setdefault(id(layers[place]), []).append(place)
        places: dict[tuple[Trainable, ...], list[int]] = {}
        for at in same.values():
            places.setdefault(body(layers[at[0]]), []).extend(at)
        inside = [Block(x, len(at), h, tuple(sorted(at))) for x, at in places.items()]
        head = dataclasses.replace(self.head, split=Columns(), among=split)
        end = [Block((norm, head), places=(len(layers),))] if share.is_last else []
        inputs = Block((self._table, *self._angles, *self.tables))
        network = Stack(
            blocks=(*([inputs] if share.is_first else []), *inside, *end),
            loss=Loss(head.outputs, split.tp) if share.is_last else None,
            norm=norm,
            skip=skip,
        )
        number = self.further_layers if share.is_last else 0
        if not number:
            return network
        joint = Linear(h, 2 * h).shard(split)
        beyond = dataclasses.replace(
            network,
            blocks=(
                Block((self._table, alone, alone, joint)),
                Block(body(layers[-1]), 1, h, (len(layers),)),
                *end,
            ),
        )
        return dataclasses.replace(network, further=number * (beyond,))


def _with_frozen(network: Stack, block: int, operator: int) -> Stack:
    """The network with one operator of a block whose weights have no gradient."""
    blocks = list(network.blocks)
    own = list(blocks[block].operators)
    own[operator] = frozen(own[operator])
    blocks[block] = dataclasses.replace(blocks[block], operators=tuple(own))
    return dataclasses.replace(network, blocks=tuple(blocks))


def layered(
    config: Config, blocks: Sequence[Layer], tied: bool = False, **more: Any
) -> TrainedModel:
    """The model of a config whose keys have all been read; raises `ValueError` for a
    key that nobody read and that may change a layer.

    `tied`: whether the head is the embedding where the config does not say.
    """
    model = TrainedModel(
        config=config,
        hidden=config.size("hidden_size"),
        vocab=config.size("vocab_size"),
        positions=positions(config),
        blocks=tuple(blocks),
        tied=config.tied(tied),
        **more,
    )
    config.check_read()
    return model


def _routed(weights: Iterable[tuple[Weights, int]]) -> list[tuple[Weights, int]]:
    """Those of routed experts."""
    return [(w, n) for w, n in weights if w.used < 1]
