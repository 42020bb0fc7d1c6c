"""Routed experts, forward as one fused op, and what they launch backward."""

import dataclasses

from ..._eager_rows import stream
from ..._kernel import Kernel
from .linear import Gated, gated_backward, narrow, storage_fields
from .memory import Weights, element_bytes
from .operator import Stored, Trainable
from .passes import ForwardPass, dense, product, rows_of
from .sharding import ModelSplit, all_reduce, collective, divide


@dataclasses.dataclass(frozen=True)
class Experts(Stored, Trainable):
    """`experts` MLP of `inner` features, of which every token takes `chosen`.

    `module`: the name of one of its matrices in a checkpoint. `gated`: gate and up,
    then down; else up and down. `bias`: of the router and of every product. `latent`:
    width on which experts act (0: `hidden`). `groups`: groups of experts, and from how
    many of them a token's experts are. `split`: how GPUs divide them. Backward
    every product of the forward pass has two, batched over the experts, each with its
    share of the rows (balanced routing).
    """

    hidden: int
    inner: int
    experts: int
    chosen: int
    gated: bool = True
    bias: bool = False
    latent: int = 0
    groups: tuple[int, int] = (1, 1)
    split: ModelSplit = ModelSplit()

    def shard(self, split: ModelSplit) -> "Experts":
        """The experts of one GPU: with `ep` GPUs each has some; `tp`/`ep` of them share
        each.

        GPUs that see the same tokens add up what their experts made (vLLM, SGLang and
        TensorRT-LLM without attention data parallelism). Replicas with tokens of their
        own send each to its experts and get the results back: two all-to-all of T h
        values for every choice, then an all-gather within a replica. Training: see
        `_around`.
        """
        if self.experts % split.ep:
            raise ValueError(
                f"`ep` is {split.ep}, which does not divide the {self.experts} experts "
                "of a layer."
            )
        key = "tp" if split.etp is None else "etp"
        divide(self.inner, split.inner, "features of an expert", key)
        divide(split.tp, split.inner, "GPUs", key)
        return dataclasses.replace(self, split=split)

    @property
    def unfused(self) -> bool:
        return False

    def in_training(self) -> tuple["Experts", ...] | None:
        return (self,) if self.gated and not self.latent else None

    def forward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of router, choice of experts, experts and exchanges."""
        split, t = self.split, run.tokens
        *router, experts = self._chosen(run)
        if run.train:
            before, behind = self._around(run)
            return [*router, *before, experts, *self._biased(run)[0], *behind]
        if split.replicas == 1:
            joined = all_reduce(t, self._width, split.tp, run.values)
            return [*router, experts, *joined]
        moved = self._width * self.chosen / split.tp
        sent = collective("all_to_all", t, moved, split.ep, run.values)
        back = collective("all_gather", t, self._width, split.tp, run.values)
        return [*router, *sent, experts, *sent, *back]

    def _around(self, run: ForwardPass) -> tuple[list[Kernel], list[Kernel]]:
        """Exchanges of a training step before and behind the experts; the gradients
        have the same again.

        Each brings its share of the tokens, 1/`tp` of those of its replica. Rows of
        every choice go to the GPUs of their experts (all-to-all) and are gathered by
        those that share one, or, without `ep`, the tokens themselves; behind the
        experts all is summed and sent back. Without sequence parallelism all tokens are
        there already, and are again behind.
        """
        split, h, values = self.split, self._width, run.values
        each = run.tokens // split.tp
        shared, width = each * split.inner, h * (self.chosen if split.ep > 1 else 1)
        both = (shared, width, split.inner, values, "tp")
        if split.ep > 1:
            sent = collective("all_to_all", each, width, split.ep, values, "ep")
            before = [*sent, *collective("all_gather", *both)]
            behind = [*collective("reduce_scatter", *both), *sent]
        elif split.sequence:
            before = collective("all_gather", *both)
            behind = collective("reduce_scatter", *both)
        else:
            before, behind = [], collective("all_reduce", *both)
        whole = split.sequence or (split.ep == 1 and split.inner == split.tp)
        if not whole:
            behind += collective("all_gather", run.tokens, h, split.tp, values, "tp")
        return before, behind

    def _tokens(self, run: ForwardPass) -> int:
        """Tokens whose choices a GPU works on in training: as many as it brings, and
        those of the GPUs that share its experts."""
        return run.tokens // self.split.tp * self.split.inner

    def _chosen(self, run: ForwardPass) -> list[Kernel]:
        split, p, tokens = self.split, run.precision, run.tokens // self.split.parts
        parts = {"moe_ep_size": split.ep, "moe_tp_size": split.inner}
        form = p.format(self.format)
        all_tokens = run.tokens * split.replicas
        if run.train:
            all_tokens = self._tokens(run) * split.ep
        dispatched = split.ep > 1 if run.train else split.replicas > 1
        experts: Kernel = dict(
            op="moe",
            num_tokens=all_tokens,
            hidden_size=self._width,
            inter_size=self.inner,
            topk=self.chosen,
            num_experts=self.experts,
            distribution=run.routing,
            dtype=form.products if form else p.linear,
            count=1,
            **({} if self.gated else {"gated": False}),
            **{name: ranks for name, ranks in parts.items() if ranks > 1},
            **({"dispatched": True} if dispatched else {}),
            **(storage_fields(form) if form else {}),
        )
        router = [
            dense(p.values, tokens, self.experts, self.hidden),
            rows_of("softmax", tokens, self.experts, "fp32"),
        ]
        return [*router, experts]

    def weights(self) -> tuple[Weights, ...]:
        used = self.chosen / self.experts
        parts = 3 if self.gated else 2
        experts, inner = self.experts // self.split.ep, self.inner // self.split.inner
        biases = (parts - 1) * inner + self._width if self.bias else 0
        matrices = experts * parts * self._width * inner
        return (
            Weights(matrices, self.format, True, used),
            Weights(experts * biases, used=used),
            Weights(self.experts * (self.hidden + self.bias)),
        )

    def backward(self, run: ForwardPass) -> list[Kernel]:
        """Kernels of the gradients of combination, down, product of gate and up, gate
        and up, look-up, router."""
        split, h, values = self.split, self.hidden, run.values
        inner, t = self.inner // split.inner, self._tokens(run)
        rows, routed = t * self.chosen, run.tokens // split.parts
        sums = {"reads": 1, "writes": 1 / rows}  # of biases, which products do not make
        biases = [stream("bias_grad", rows * (h + 2 * inner), values, 1, **sums)]
        before, behind = self._around(run)
        spread = {"reads": 1 + 1 / self.chosen, "writes": 1}  # dy and expert outputs
        routing = stream(
            "softmax_backward", routed * self.experts, "fp32", 1, reads=2, writes=1
        )
        return [
            *before,
            stream("combine_backward", rows * h, values, 1, **spread),
            *self._products(run, h, inner),
            gated_backward(rows * inner, values),
            *self._products(run, 2 * inner, h),
            *(biases if self.bias else []),
            *self._biased(run)[1],
            stream("dispatch_backward", t * h, values, 1, reads=self.chosen, writes=1),
            *behind,
            routing,
            dense(values, routed, h, self.experts),
            product(values, 1, self.experts, h, routed),
        ]

    def _biased(self, run: ForwardPass) -> tuple[list[Kernel], list[Kernel]]:
        """Kernels forward and backward of what training programs do not fuse of experts
        with biases, those of gpt-oss, in 16 bit.

        Megatron-LM (`fused_bias_geglu`, `TEGroupedMLP._apply_bias`): gate and up are
        clamped each and joined again; the last bias is weighted, added expert by
        expert, and the results are joined.
        """
        if not self.bias:
            return [], []
        rows, inner = self._tokens(run) * self.chosen, self.inner // self.split.inner
        gates, results = rows * inner, rows * self.hidden

        def moved(fn: str, elements: int, reads: int, writes: int) -> Kernel:
            return stream(fn, elements, run.values, 1, reads=reads, writes=writes)

        return [moved("clamp", gates, 4, 4), moved("bias_add", results, 3, 3)], [
            # gradients of both clamps, joined; of weight and bias beside `bias_grad`
            moved("clamp_backward", gates, 6, 4),
            moved("bias_add_backward", results, 3, 2),
        ]

    def saved_bytes(self, run: ForwardPass) -> float:
        """The input of router and dispatch; of every choice the dispatched row, gate,
        up and their product, and the result where it is weighted afterwards."""
        inner = self.inner // self.split.inner
        wide = run.kept_bytes * (self.hidden + 2 * inner)
        wide += run.element_bytes * self.hidden * run.storage.results
        rows = self._tokens(run) * self.chosen
        return self.input_bytes(run) + rows * wide + self.product_bytes(run)

    def product_bytes(self, run: ForwardPass) -> float:
        """Bytes of the product of gate and up of every choice."""
        rows, inner = self._tokens(run) * self.chosen, self.inner // self.split.inner
        return rows * inner * element_bytes(run.precision.linear)

    def gated_product(self, run: ForwardPass) -> Gated:
        """The product of gate and up of all choices, as one of the tokens of `run`."""
        rows, inner = self._tokens(run) * self.chosen, self.inner // self.split.inner
        return Gated(max(rows * inner // run.tokens, 1))

    def input_bytes(self, run: ForwardPass) -> float:
        e = element_bytes(run.precision.linear)
        return run.tokens / self.split.parts * self.hidden * e

    def selective_bytes(self, run: ForwardPass) -> float:
        features = 2 * self.inner // self.split.inner + self.hidden
        return self._tokens(run) * self.chosen * features * run.element_bytes / 2

    def _products(self, run: ForwardPass, outputs: int, inputs: int) -> list[Kernel]:
        """Gradients of the input and of the weights of every expert; some have a row
        more where the rows do not divide."""
        rows, dtype = self._tokens(run) * self.chosen, run.precision.linear
        active = min(self.experts // self.split.ep, rows)
        share, more = divmod(rows, active)
        shares = ((active - more, share), (more, share + 1))
        cast = narrow(run, rows * outputs, dtype)
        return cast + [
            kernel
            for experts, tokens in shares
            if experts
            for kernel in (
                dense(dtype, tokens, inputs, outputs, batch=experts),
                product(dtype, experts, outputs, inputs, tokens),
            )
        ]

    @property
    def _width(self) -> int:
        return self.latent or self.hidden
