"""Language models of layers: operators, weights and memory of a training step, and the
pass of Hugging Face modules, which is the same operators' forward pass."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from .._kernel import Kernel, Number, normalise_rows
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
    training_state,
    working_bytes,
)
from ._operators.operator import Angles, ForwardPass, Norm, Residual, Trainable
from ._operators.partial import freeze
from ._operators.sharding import Columns
from ._request import Request, length_of
from ._speculation import mtp_layer, mtp_layers
from ._stack import Block, Stack
from ._step import Loss, check_frozen, training_listings

_SERVED: Final = "only prefill, decode, generate and forward"
_ROUND: Final = 3
"""Modules outside the layers: the model, the look-up, the last norm."""
_HEAD: Final = 2
"""Modules of a head: itself, and the module that holds it and the model."""


@dataclasses.dataclass(frozen=True)
class SavedActivations:
    """Bytes that a micro-batch saves for its backward pass: `each` of every micro-batch
    in flight, `once` of the layer that runs again, `logits`; `workspace`: the CUDA
    context and the gradients of a layer's operands."""

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
    """A causal language model that serves; it also trains, and runs as eager modules,
    where all of its layers do."""

    @functools.cached_property
    def trains(self) -> bool:
        """Whether its training step is known."""
        return None not in (x.in_training() for x in dict.fromkeys(self.blocks))

    @functools.cached_property
    def _fused(self) -> list[Trainable]:
        """Operators that exist as fused kernels only."""
        parts = (y for x in dict.fromkeys(self.blocks) for y in x.in_training() or ())
        return [x for part in parts for x in part if not x.unfused]

    def module_calls(self, base: bool) -> int:
        head = 0 if base else _HEAD
        if self.modules:
            layer, around, head_calls = self.modules
            return self.layers * layer + around + (0 if base else head_calls)
        inside = sum(x.modules for x in self.blocks)
        return inside + _ROUND + len(self._angles) + head

    @functools.cached_property
    def kinds(self) -> tuple[int, ...]:
        """For each layer the place of the first layer equal to it."""
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
        weights, share = self.training_weights(request), self.share
        rest = math.ceil((weights.trained - weights.trained_experts) / share.shards)
        optimized = rest + math.ceil(weights.trained_experts / share.expert_shards)
        layer_share, trained = network.layers / self.layers, weights.trained
        return training_listings(
            self, passes, request, run, trained, optimized, layer_share
        )

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
        if request.bf16_layers:
            network = network.with_wide_ends(request.bf16_layers, self.layers)
        if request.lora:
            network = network.with_adapters(
                request.lora, request.lora_layers, head=False
            )
            return dataclasses.replace(network, further=())
        if not stopped:
            return network
        further = tuple(_with_frozen(x, 0, 0) for x in network.further)
        if self.share.is_last and self.tied:
            network = _with_frozen(network, -1, 1)
        return dataclasses.replace(network, frozen=stopped, further=further)

    def training_weights(self, request: Request) -> TrainingWeights:
        """Weights of this GPU in a training step, trained and frozen."""
        p, layer = self.precision(request), self._largest_layer
        e = element_bytes(p.values)
        if not (request.lora or request.frozen_layers):
            whole, largest = self.step_parameters(), number_of(layer)
            return TrainingWeights(
                whole, self.expert_parameters(), largest, largest * e
            )
        network = self._trained_network(request)
        every = network.trained_weights
        every += [] if request.lora else self.further_weights()
        largest = network.largest_trained_layer()
        still = bytes_of(layer, p)
        beside = self.step_parameters() - self.text_step_parameters()
        published = [*self.trained_weights(), (Weights(beside), 1)]
        # adapters stand beside published weights, none of which is trained then
        moving = [] if request.lora else every
        return TrainingWeights(
            number_of(every),
            number_of(_of_experts(every)),
            largest,
            still + largest * e if request.lora else max(still, largest * e),
            bytes_of(published, p) - bytes_of(moving, p),
            bytes_of(_of_experts(published), p) - bytes_of(_of_experts(moving), p),
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
        visible = length if split.cp == 1 else length // 2
        run = self.run(request, length // split.cp, visible)
        return dataclasses.replace(run, train=True, cp=split.cp)

    @property
    def further_layers(self) -> int:
        """Number of layers that learn tokens beyond the next (DeepSeek-V3, arXiv
        2412.19437, section 2.2)."""
        return mtp_layers(self.config)

    def further_weights(self) -> list[tuple[Weights, int]]:
        """Weights of the layers for further tokens, and how often each occurs; a last
        stage that is not the first has the table once more. The head is that of the
        model."""
        number = self.further_layers if self.share.is_last else 0
        if not number:
            return []
        layer = mtp_layer(self.hidden, self.stack()[-1]).shard(self.share.split)
        norms = [(w, layer.norms + 1) for w in self._norm.weights()]
        weights = [(w, n * number) for w, n in (*layer.all_weights(), *norms)]
        has_table = self.share.is_first or not self.untied
        return (
            weights
            if has_table
            else [*weights, *((w, 1) for w in self._table.weights())]
        )

    def trained_weights(self) -> list[tuple[Weights, int]]:
        """Weights of a training step and how often they occur, without towers."""
        return [*self.all_weights(), *self.further_weights()]

    @functools.cached_property
    def _numbers(self) -> tuple[int, int]:
        """Parameters of a training step without towers, and of them routed experts'."""
        weights = self.trained_weights()
        return number_of(weights), number_of(_of_experts(weights))

    @functools.cached_property
    def _largest_layer(self) -> list[tuple[Weights, int]]:
        """Weights of the largest layer on this GPU."""
        norm = [(w, 1) for w in self._norm.weights()]
        several = {id(x): x for x in self.stack()}.values()  # hashing each takes longer
        layers = (layer.shard(self.share.split) for layer in several)
        return max((x.all_weights() + x.norms * norm for x in layers), key=number_of)

    def expert_parameters(self) -> int:
        """Number of parameters of routed experts in a training step."""
        return self._numbers[1]

    def text_step_parameters(self) -> int:
        """Number of parameters of a training step without a vision tower."""
        return self._numbers[0]

    def step_parameters(self) -> int:
        """Number of parameters of a training step: published ones and those of the
        layers for further tokens."""
        return self.text_step_parameters() + self.parameters() - self.text_parameters()

    def memory(self, request: Request) -> dict[str, float]:
        """Bytes by part; in training saved activations and AdamW's state."""
        if request.phase != "train":
            return super().memory(request)
        saved, weights = self.saved_activations(request), self.training_weights(request)
        return memory_by_part(
            **training_state(
                weights.trained, self.precision(request).values, weights.frozen
            ),
            activations=saved.each + saved.once,
            logits=saved.logits,
            workspace=saved.workspace,
        )

    def saved_activations(self, request: Request, **changed: Any) -> SavedActivations:
        """Activations that a micro-batch of a training step saves on this GPU;
        `changed`: other fields of its `ForwardPass`."""
        run = dataclasses.replace(self.training_run(request), **changed)
        network = self._trained_network(request)
        each, once = network.saved_bytes(run)
        body = self._pass(dataclasses.replace(request, base=True), *2 * (run.q_len,))
        working = working_bytes(normalise_rows(body, self.name))  # their gradients
        return SavedActivations(each, once, network.logits(run), CONTEXT + working)

    @property
    def _norm(self) -> Norm:
        """Norm over the width of a layer."""
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
            operators: list[Any] = []
            for part in layer.in_training() or ():
                sharded = Layer(part).shard(split).operators
                operators += (norm, *sharded, *behind, skip)
            return tuple(operators)

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
    """The network with one operator of a block frozen."""
    blocks = list(network.blocks)
    operators = list(blocks[block].operators)
    operators[operator] = freeze(operators[operator])
    blocks[block] = dataclasses.replace(blocks[block], operators=tuple(operators))
    return dataclasses.replace(network, blocks=tuple(blocks))


def build_model(
    config: Config, blocks: Sequence[Layer], tied: bool = False, **more: Any
) -> TrainedModel:
    """The model of a config. Raises `ValueError` for a key that nobody read and that
    may change a layer.

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


def _of_experts(weights: Iterable[tuple[Weights, int]]) -> list[tuple[Weights, int]]:
    """Those of `weights` that belong to routed experts."""
    return [(w, n) for w, n in weights if w.used < 1]
