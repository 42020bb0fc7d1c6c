"""Language models: phases, passes and memory of a stack of layers."""

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ... import dtypes
from .._kernel import Kernel, normalise_rows
from .._listing import Listing
from ._checkpoint.formats import Precision
from ._layer import Layer
from ._layered import LayeredModel
from ._operators.experts import Experts
from ._operators.memory import bytes_of, logit_bytes, memory_by_part, working_bytes
from ._operators.operator import Cached, ForwardPass
from ._operators.passes import ROUTING, repeat_rows, rows_of
from ._operators.sharding import ModelShare, collective
from ._request import Request, decode_segments, length_of
from ._speculation import (
    EAGLE_WORDS,
    Speculation,
    eagle_layer,
    mtp_layer,
    mtp_layers,
    speculation_of,
)


@dataclasses.dataclass(frozen=True)
class LanguageModel(LayeredModel):
    """A causal language model: prefill, decode, generation."""

    divides: ClassVar[bool] = True
    """Whether several GPUs can share it."""

    @property
    def max_positions(self) -> int:
        return self.positions

    def defaults(self) -> dict[str, Any]:
        return dict(
            batch=1,
            input_len=512,
            output_len=128,
            phase="generate",
            dtype=self.stored_dtype,
            kv_dtype=self.checkpoint.kv_dtype,
            attention="flash",
            stack="serving",
            dispatch=None,
            base=not self._has_head(),
            routing=self.default_routing(),
        )

    def inputs(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults of `images` and `image_tokens` where the model has a vision tower:
        one image of the usual size."""
        if self.tower is None:
            return {}
        names = ("images", "image_tokens")
        chosen = [name for name in names if name in choices]
        if not chosen:
            return dict.fromkeys(names)
        if self.tower.parameters is None or choices.get("phase") == "train":
            why = self.tower.note or "training is known of the language model alone"
            raise ValueError(f"`{chosen[0]}` is {choices[chosen[0]]}, but {why}.")
        return dict(zip(names, (1, self.tower.usual), strict=True))

    def request(self, **choices: Any) -> Request:
        """The request with every choice made; see `Model.request`."""
        if self.checkpoint.unread and choices.get("dtype") is None:
            raise ValueError(self.checkpoint.unread)
        return super().request(**choices)

    def precision(self, request: Request) -> Precision:
        return self._precision(request.dtype, request.kv_dtype)

    def memory(self, request: Request) -> dict[str, float]:
        """Bytes by part: weights, KV cache of all tokens, operands of a layer."""
        length = length_of(request)
        read = 1 if request.phase == "decode" else length
        run = self.run(request, read, length)
        body = self._pass(dataclasses.replace(request, base=True), read, length)
        scored = run.tokens if request.stack == "eager" else run.sequences
        tokens = length + (request.output_len or 0)
        drafting, drafted = self.drafting(request)
        elements = sum(
            x.elements * n * min(tokens, x.window or tokens)
            for x, n in [*self.all_cached(), *drafted]
        )
        e = dtypes.BYTES[dtypes.code(request.kv_dtype)]
        return memory_by_part(
            weights=self.weight_bytes(request.dtype) + drafting,
            kv_cache=request.batch * elements * e,
            state=request.batch * self.state_bytes(),
            activations=working_bytes(
                normalise_rows([*self._encoded(request), *body], self.name)
            ),
            logits=0.0
            if request.base or not self.share.is_last
            else scored * self.vocab * logit_bytes(run.values),
        )

    def drafting(self, request: Request) -> tuple[float, list[tuple[Cached, int]]]:
        """Weights (bytes) and caches of the network that drafts tokens, if any."""
        speculation = speculation_of(request)
        if speculation is None or not self.share.is_last:
            return 0.0, []
        drafter = self.drafter(speculation)
        cached = list(drafter.all_cached())
        if isinstance(drafter, LanguageModel):  # in the types that it is stored in
            return drafter.weight_bytes(drafter.stored_dtype), cached
        return bytes_of(drafter.all_weights(), self.precision(request)), cached

    def placed(self, share: ModelShare) -> "LanguageModel":
        """The part of the model on one of several GPUs. Raises `ValueError` for a model
        that cannot be divided so."""
        if not self.divides:
            raise ValueError(f"`plan` is given, but {self.name} runs on one GPU alone.")
        return dataclasses.replace(self, share=share)

    def run(
        self, request: Request, q_len: int, kv_len: int, verify: bool = False
    ) -> ForwardPass:
        """Forward pass of `q_len` new tokens a sequence against `kv_len` cached
        ones."""
        return ForwardPass(
            request.batch,
            q_len,
            kv_len,
            self.precision(request),
            request.stack == "serving",
            request.attention == "flash",
            request.recomputed,
            request.routing or "balanced",
            verify,
            storage=request.storage,
        )

    def default_routing(self) -> str | None:
        """Default routing of tokens to experts; None without experts."""
        routed = any(w.used < 1 for w, _ in self.all_weights())
        return ROUTING if routed else None

    @property
    def expert_groups(self) -> tuple[int, int]:
        """Groups of experts, and from how many of them the experts of a token are."""
        operators = (x for layer in self.stack() for x in layer.operators)
        mixed = next((x for x in operators if isinstance(x, Experts)), None)
        return mixed.groups if mixed else (1, 1)

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        mixed = {
            id(x): any(isinstance(y, Experts) for y in x.operators)
            for x in self.stack()
        }
        return sum(mixed[id(x)] for x in self.stack())

    def _check(self, values: dict[str, Any]):
        images = (values.get("images") or 0) * (values.get("image_tokens") or 0)
        total = values["input_len"] + (values["output_len"] or 0) + images
        if total > self.max_positions:
            lengths = ["`input_len`"] + ["`output_len`"] * bool(values["output_len"])
            summed = " + ".join(lengths) + " + images" * bool(images)
            remedy = "shorten the input" + " or the output" * (len(lengths) > 1)
            raise ValueError(
                f"{summed} is {total}, but {self.name} has "
                f"{self.max_positions} positions; {remedy}."
            )

    def listings_of(self, request: Request) -> list[Listing]:
        length = length_of(request)
        if request.phase == "decode":
            return [self.listing(request, self._step(request, length), "decode")]
        prefill = [*self._encoded(request), *self._pass(request, length, length)]
        if request.phase != "generate":
            return [self.listing(request, prefill, request.phase)]
        listings = [self.listing(request, prefill, "prefill", suffix="/prefill")]
        steps = (request.output_len or 1) - 1
        if steps:
            speculation = speculation_of(request)
            each = 1 / speculation.tokens if speculation else 1  # steps a token
            rows = [
                row
                for kv_len, count in decode_segments(length, steps)
                for row in repeat_rows(self._step(request, kv_len), count * each)
            ]
            listings.append(
                self.listing(request, rows, "decode", steps * each, suffix="/decode")
            )
        return listings

    def _one_pass(self, request: Request) -> list[Kernel]:
        length = length_of(request)
        if request.phase == "decode":
            return self._step(request, length)
        return self._pass(request, length, length)

    def _encoded(self, request: Request) -> list[Kernel]:
        """Kernels of the tower over the images of all sequences; none in decode."""
        if not request.images or self.tower is None or request.phase == "decode":
            return []
        images, tokens = request.batch * request.images, request.image_tokens or 1
        return self.tower.rows(images, tokens, self.precision(request))

    def _step(self, request: Request, kv_len: int) -> list[Kernel]:
        """Kernels of a decode step: one token, or drafted tokens and their
        verification."""
        speculation = speculation_of(request)
        if speculation is None:
            return self._pass(request, 1, kv_len)
        drafted = self._drafts(speculation, request, kv_len)
        run = self.run(request, speculation.drafted + 1, kv_len, verify=True)
        checked = self._serving_pass(run) + self._serving_head(
            run, speculation.drafted + 1
        )
        return [*checked, *repeat_rows(drafted, speculation.drafted)]

    def _drafts(
        self, speculation: Speculation, request: Request, kv_len: int
    ) -> list[Kernel]:
        """Kernels that draft one token."""
        run = self.run(request, 1, kv_len)
        drafter = self.drafter(speculation)
        if isinstance(drafter, LanguageModel):
            plain = dataclasses.replace(
                request,
                speculative=None,
                base=False,
                dtype=drafter.stored_dtype,
                routing=drafter.default_routing(),
            )
            return drafter._pass(plain, 1, kv_len)
        inside = [row for x in drafter.operators for row in x.forward(run)]
        words = min(EAGLE_WORDS, self.vocab) if speculation.kind == "eagle" else 0
        return [*self._around(run, inside, 1), *self._serving_head(run, 1, words)]

    def drafter(self, speculation: Speculation) -> "LanguageModel | Layer":
        """The drafting network: another model, the layer of the config for further
        tokens, or a layer trained for the model (EAGLE-3, arXiv 2503.01840)."""
        if speculation.kind == "draft":
            from . import load_model  # which loads all families

            try:
                model = load_model(speculation.model)
            except ValueError as error:
                raise ValueError(
                    f"`speculative` is 'draft={speculation.model}': {error}"
                ) from None
            if not isinstance(model, LanguageModel):
                raise ValueError(
                    f"`speculative` is 'draft={speculation.model}', which is no "
                    "language model."
                )
            return model.placed(ModelShare(self.share.split))
        split = self.share.split
        if speculation.kind == "eagle":
            return eagle_layer(self.hidden, self.stack()[0]).shard(split)
        if not mtp_layers(self.config):
            raise ValueError(
                f"`speculative` is 'mtp', but {self.name} states no layer that "
                "predicts further tokens; take eagle or draft=MODEL."
            )
        last = self.stack()[-1]
        layer = mtp_layer(self.hidden, last)
        return self._formatted(layer, len(self.stack())).shard(split)

    def _pass(self, request: Request, q_len: int, kv_len: int) -> list[Kernel]:
        run = self.run(request, q_len, kv_len)
        if not run.fused:
            return self._modules_pass(run, request.base)
        rows = self._serving_pass(run)
        return rows if request.base else rows + self._serving_head(run)

    @abc.abstractmethod
    def _modules_pass(self, run: ForwardPass, base: bool) -> list[Kernel]:
        """Kernels that Hugging Face modules launch in one pass; `base`: without a
        head."""

    def _serving_pass(self, run: ForwardPass) -> list[Kernel]:
        """Fused kernels of one pass, up to the final norm."""
        inside = [
            row
            for layer, n in self.layer_counts.items()
            for operator in layer.operators
            for row in repeat_rows(operator.forward(run), n)
        ]
        sent = self.share.sends(run.tokens, self.hidden, run.values)
        return self._around(run, [*inside, *sent], self.norms)

    def _around(
        self, run: ForwardPass, inside: list[Kernel], norms: int
    ) -> list[Kernel]:
        """Kernels of layers between the look-up and `norms`."""
        t, h, dtype = run.tokens, self.hidden, run.values
        return [
            *self._table.forward(dataclasses.replace(run, fused=False)),
            rows_of(self.norm, t, h, dtype),
            *inside,
            # those of all layers and the final one; the first had no residual to add
            rows_of(self.norm, t, h, dtype, count=norms, residual=True),
        ]

    def _serving_head(
        self, run: ForwardPass, tokens: int = 1, words: int = 0
    ) -> list[Kernel]:
        """Logits of the last `tokens` of each sequence over `words` (0: all), gathered
        where several GPUs have some, and sampling."""
        last, ranks = dataclasses.replace(run, q_len=tokens), self.share.split.tp
        head, words = self.head, words or self.vocab
        head = dataclasses.replace(head, outputs=math.ceil(words / ranks))
        gathered = collective("all_gather", last.tokens, words, ranks, run.values)
        sampled = rows_of("softmax", last.tokens, words, "fp32")
        return [*head.forward(last), *gathered, sampled]
