"""Decoders of equal layers, served, run by operators or trained."""

import abc
import dataclasses
import math
from typing import Any, ClassVar

from ..._listing import Kernel, Listing
from ..._unlisted import (
    Attention,
    attention_copies,
    finished,
    repeated_keys,
    unlisted,
)
from .._inputs import length_of
from .._layers.attention import CachedAttention
from .._layers.layer import Layer
from .._network.linear_layer import Linear
from .._network.operators import (
    Embedding,
    Fixed,
    Norm,
    Operator,
    Pass,
    Residual,
    Trainable,
)
from .._network.parts import adapted, frozen, trained_parameters
from .._network.self_attention import Heads, Rotary, SelfAttention
from .._network.sharding import Columns
from .._network.step import (
    Loss,
    Network,
    backward,
    check_frozen,
    forward,
    kept,
    training_listings,
)
from .attention import Scores, fused
from .base import Request, linear, repeated
from .language_model import LanguageModel
from .memory import CONTEXT, in_parts, trained, working_bytes


@dataclasses.dataclass(frozen=True)
class Left:
    """Bytes that a micro-batch of a training step leaves for its backward pass: `each`
    for every one in flight, `once` for the layer that runs again, `logits`;
    `workspace`: the context and the gradients of a layer's operands."""

    each: float
    once: float
    logits: float
    workspace: float


@dataclasses.dataclass(frozen=True)
class Decoder(LanguageModel):
    """A causal language model of equal layers, which also trains."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    window: int
    tied: bool

    rotary: ClassVar[bool] = False
    scores: ClassVar[Scores]

    def stack(self) -> tuple[Layer, ...]:
        before, behind = self._halves(True, self.attention)
        return self.layers * (Layer((*before, *behind)),)

    def _halves(
        self, fused: bool, *attention: Operator
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Operators behind the two norms of a layer, around its `attention`."""
        inward = (*self.projections(fused), *self.head_norms())
        return (*inward, *attention, self.output(fused)), self.mlp(fused)

    @property
    def own_head(self) -> bool:
        return not self.tied

    @property
    def attention(self) -> CachedAttention:
        """Attention of a serving engine."""
        heads = (self.heads, self.kv_heads, self.head_dim)
        return CachedAttention(*heads, window=self.window, rotary=self.rotary)

    @property
    def embedding(self) -> Embedding:
        """Look-up of tokens, and of positions where they are learned."""
        return Embedding(self.vocab, self.hidden, 0 if self.rotary else self.positions)

    @abc.abstractmethod
    def projections(self, fused: bool) -> tuple[Linear, ...]:
        """Queries, keys and values of a layer."""

    def head_norms(self) -> tuple[Norm, ...]:
        """Norms of queries and keys, by head."""
        return ()

    @abc.abstractmethod
    def output(self, fused: bool) -> Linear:
        """Linear layer behind the attention."""

    @abc.abstractmethod
    def mlp(self, fused: bool) -> tuple[Trainable, ...]:
        """What follows the second norm of a layer."""

    def tables(self, run: Pass) -> list[Kernel]:
        """Masks or angles that an eager pass makes before its layers."""
        return []

    @abc.abstractmethod
    def _eager_pass(self, run: Pass) -> list[Kernel]:
        """Kernels that the Hugging Face base model launches in one pass."""

    def _listings(self, request: Request) -> list[Listing]:
        if request.phase != "train":
            return super()._listings(request)
        run = self.training_run(request)
        network = self._trained_network(request, run)
        passes = forward(network, run), backward(network, run)
        trained = self._trained_parameters(request, network)
        some = request.lora or request.frozen_layers
        optimized = None if some else self.optimized_parameters()
        own = network.layers / network.number
        return training_listings(self, passes, request, run, trained, optimized, own)

    def _check(self, values: dict[str, Any]):
        super()._check(values)
        check_frozen(values, self.name, self.layers)
        if values.get("lora") and self.default_routing():
            raise ValueError(
                f"`lora` is {values['lora']}, but {self.name} has experts, whose "
                "adapters are not known; leave it out or take `--frozen-layers`."
            )

    def _trained_network(self, request: Request, run: Pass) -> Network:
        """Operators of a training step: some without gradients of their weights, or
        with adapters. A head that is the embedding's table is frozen with it."""
        network = self.network(run)
        if request.frozen_layers:
            norm, head, loss = network.ends
            head = head if self.own_head else frozen(head)
            stopped, ends = request.frozen_layers, (norm, head, loss)
            return dataclasses.replace(network, ends=ends, frozen=stopped)
        if not request.lora:
            return network
        single = self.network(dataclasses.replace(run, fused=False)).body
        return dataclasses.replace(
            network,
            inputs=tuple(frozen(x) for x in network.inputs),
            norm=frozen(network.norm),
            body=adapted(network.body, request.lora, single),
            ends=tuple(frozen(x) for x in network.ends),
        )

    def _trained_parameters(self, request: Request, network: Network) -> int:
        """Weights that have a gradient; with adapters theirs alone."""
        if not (request.lora or request.frozen_layers):
            return self.parameters()
        layer = trained_parameters((network.norm, *network.body))
        ends = trained_parameters(network.ends)
        return (network.layers - network.frozen) * layer + ends

    def training_run(self, request: Request) -> Pass:
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

    def layer_parameters(self) -> int:
        """Parameters of a layer as this GPU has it."""
        (whole,) = set(self.stack())
        layer = whole.shard(self.share.split)
        norm = sum(
            w.number
            for w in Norm(self.norm, self.hidden, shifted=self.norm_bias).weights()
        )
        return sum(w.number * n for w, n in layer.all_weights()) + layer.norms * norm

    def expert_parameters(self) -> int:
        """Parameters of routed experts."""
        return sum(w.number * n for w, n in self.all_weights() if w.used < 1)

    def optimized_parameters(self) -> int:
        """Parameters whose AdamW state this GPU has."""
        share, experts = self.share, self.expert_parameters()
        rest = self.parameters() - experts
        return math.ceil(rest / share.shards) + math.ceil(experts / share.expert_shards)

    def memory(self, request: Request) -> dict[str, float]:
        """In training what a micro-batch leaves for its gradients beside AdamW's
        state."""
        if request.phase != "train":
            return super().memory(request)
        left, run = self.leaves(request), self.training_run(request)
        number = self._trained_parameters(request, self._trained_network(request, run))
        adapters = request.lora and number or 0
        return in_parts(
            **trained(self.parameters() + adapters, run.values, number),
            activations=left.each + left.once,
            logits=left.logits,
            workspace=left.workspace,
        )

    def leaves(self, request: Request, **changed: Any) -> Left:
        """What a micro-batch of a training step leaves in the memory of this GPU;
        `changed`: fields of its `Pass`."""
        run = dataclasses.replace(self.training_run(request), **changed)
        network = self._trained_network(request, run)
        each, once = kept(network, run)
        body = self._pass(dataclasses.replace(request, base=True), *2 * (run.q_len,))
        working = working_bytes(finished(body, self.name))  # their gradients
        logits = network.ends[-1].kept(run) if network.ends else 0.0
        return Left(each, once, logits, CONTEXT + working)

    def _pass(self, request: Request, q_len: int, kv_len: int) -> list[Kernel]:
        run = self.run(request, q_len, kv_len)
        if run.fused:
            return super()._pass(request, q_len, kv_len)
        head = linear(run.precision, self.vocab, run.tokens, self.hidden)
        return [*self._eager_pass(run), *([] if request.base else [head])]

    def network(self, run: Pass) -> Network:
        """Operators of a training step."""
        h, layout, share = self.hidden, self.head_layout, self.share
        rotary = (Rotary(layout),) if self.rotary else ()
        halves = self._halves(run.fused, *rotary, SelfAttention(layout, self.scores))
        before, behind = (Layer(x).shard(share.split).operators for x in halves)
        norm: Norm = Norm(self.norm, h).shard(share.split)
        skip = Residual(h).shard(share.split)
        inputs = (self._table, Fixed(() if run.fused else self.tables(run)))
        head = dataclasses.replace(self.head, split=Columns(), among=share.split)
        body: Any = (*before, skip, norm, *behind, skip)
        ends = (norm, head, Loss(head.outputs, share.split.tp))
        return Network(
            inputs=inputs if share.is_first else (),
            norm=norm,
            body=body,
            skip=skip,
            layers=len(share.layers(self.layers)),
            number=self.layers,
            ends=ends if share.is_last else (),
        )

    def each(self, run: Pass, *operators: Trainable) -> list[Kernel]:
        """Forward kernels of operators that every layer has."""
        return repeated([row for x in operators for row in x.forward(run)], self.layers)

    @property
    def head_layout(self) -> Heads:
        """Heads of the attention."""
        return Heads(self.heads, self.kv_heads, self.head_dim, self.window)

    def _site(self, run: Pass) -> Attention:
        """All attention calls of a pass."""
        return self.head_layout.site(run, self.layers)

    def _eager_attention(self, run: Pass) -> list[Kernel]:
        """One fused kernel a layer, or the module's operators."""
        site, p = self._site(run), run.precision
        if run.flash:
            return [fused(site, p, window=self.window)]
        return self.scores.rows(site, p, (), **run.zeros)

    def _eager_copies(self, run: Pass) -> list[Kernel]:
        """Unlisted copies around attention; in decode also the grown KV cache."""
        dtype, site = run.values, self._site(run)
        rows = repeated_keys(site, dtype)
        if not run.flash:
            rows += attention_copies(site, dtype)
        if run.is_decode:
            cached = run.sequences * self.kv_heads * run.kv_len * self.head_dim
            rows.append(unlisted("concat", cached, dtype, 2 * self.layers))
        return rows
