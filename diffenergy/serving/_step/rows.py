"""Kernels of one engine step: sequences that decode beside prompts that are read.

Products see the tokens of both in one launch (chunked prefill, arXiv 2403.02310);
attention and recurrences run apart for each kind.
"""

import dataclasses
from collections.abc import Iterator
from typing import Final

from ...dtypes import canonical, stored_bytes
from ...kernels import ops
from ...workload import (
    ForwardPass,
    Kernel,
    LanguageModel,
    Listing,
    Operator,
    repeat_rows,
    speculation_of,
)
from ...workload.models import Request
from .groups import grouped_rows

PARTS: Final = (
    "linear", "attention", "head", "communication", "experts", "small",
)  # fmt: skip
"""Parts of a step that are kernels: that which the op of a row says (`Op.part`), the
head apart. `experts`: those with weights below 16 bits, which engines run by libraries
of their own (FlashInfer, DeepGEMM, Marlin) while 16 bits are the Triton kernels that
tables have; `small`: norms, quantisation, softmax, rotary, adds of models with such
experts; what sees one sequence at a time, so that both kinds launch their own, is
`attention`; all else of a layer is `linear`."""
LINEAR: Final = tuple(PARTS.index(name) for name in ("linear", "experts", "small"))
"""Places of the parts that see all tokens at once."""


@dataclasses.dataclass(frozen=True)
class Step:
    """`sequences` that decode with `context` tokens cached in the mean, and one prompt
    of which `prompt` tokens are read against `behind` tokens of it that are cached.
    `drafted`: tokens of each sequence that the step verifies beside the next one."""

    sequences: int
    context: int
    prompt: int = 0
    behind: int = 0
    drafted: int = 0

    @property
    def tokens(self) -> int:
        """Rows of the products."""
        return self.sequences * (1 + self.drafted) + self.prompt


def listing(
    model: LanguageModel, request: Request, step: Step
) -> tuple[Listing, list[str]]:
    """Kernels of a step and the part of each (`PARTS`); `request`: types and routing.

    Launched as a graph: what an engine adds is among its constants.
    """
    rows = [row for part in _rows(model, request, step) for row in part]
    groups, tokens = model.share.split.replicas, step.tokens - step.prompt
    rows = grouped_rows(rows, groups, step.sequences, tokens, step.prompt)
    merged = model.listing(request, rows, "decode", merged=True)
    heads = {_key(row) for row in _head(model, request, step)}
    parts = [_part(row, heads) for row in merged.kernels]
    if "experts" not in parts:
        parts = ["linear" if part == "small" else part for part in parts]
    return merged, parts


def _rows(model: LanguageModel, request: Request, step: Step) -> Iterator[list[Kernel]]:
    runs = _Runs(model, request, step)
    norms = sum(layer.norms * n for layer, n in model.layer_counts.items())
    inside = [
        row
        for layer, n in model.layer_counts.items()
        for operator in layer.operators
        for row in repeat_rows(runs.of(operator), n)
    ]
    yield model._around(runs.both, inside, norms)
    yield _head(model, request, step)
    speculation = speculation_of(request)
    if speculation and step.drafted and step.sequences:
        one = dataclasses.replace(request, batch=step.sequences)
        drafts = model._drafts(speculation, one, max(step.context, 2))
        yield repeat_rows(drafts, step.drafted)


def _head(model: LanguageModel, request: Request, step: Step) -> list[Kernel]:
    """Logits of every token that is verified or next, and of the prompt's last
    one."""
    number = step.sequences * (1 + step.drafted) + bool(step.prompt)
    one = dataclasses.replace(request, batch=number)
    return model._serving_head(model.run(one, 1, max(step.context, 2)))


class _Runs:
    """The passes that share a step."""

    def __init__(self, model: LanguageModel, request: Request, step: Step):
        if step.prompt == 1 and not step.drafted:  # as a sequence that decodes
            step = dataclasses.replace(step, sequences=step.sequences + 1, prompt=0)

        def run(batch: int, q_len: int, kv_len: int, verify: int = 0) -> ForwardPass:
            one = dataclasses.replace(request, batch=batch)
            return model.run(one, q_len, kv_len, verify > 0)

        context = max(step.context, 2)
        self.both = run(step.tokens, 1, context)
        apart = []
        if step.sequences:
            each = 1 + step.drafted
            apart.append(run(step.sequences, each, context, step.drafted))
        if step.prompt:
            apart.append(run(1, step.prompt, step.prompt + step.behind))
        self.apart = apart

    def of(self, operator: Operator) -> list[Kernel]:
        """Rows of an operator: of all tokens at once, but for what sees one sequence
        at a time."""
        together = operator.forward(self.both)
        if not any(_per_sequence(row) for row in together):
            return together
        passes = [operator.forward(run) for run in self.apart]
        rest = [row for row in together if not _per_sequence(row)]
        alike = all(
            [_kind(row) for row in rows if not _per_sequence(row)]
            == [_kind(row) for row in rest]
            for rows in passes
        )
        if not alike:  # a prompt takes another way, such as latents that are expanded
            return [row for rows in passes for row in rows]
        per_sequence = [row for rows in passes for row in rows if _per_sequence(row)]
        return [*rest, *per_sequence]


def _kind(row: Kernel) -> tuple[str, str | None]:
    return row["op"], row.get("fn")


def _key(row: Kernel) -> tuple[object, ...]:
    """What tells the head's rows from others: their sizes."""
    return tuple(row.get(name) for name in ("op", "m", "n", "k", "rows", "cols"))


def _part(row: Kernel, heads: set[tuple[object, ...]]) -> str:
    part = ops()[row["op"]][0].part
    if part == "experts" and _wide(row):
        return "linear"
    return "head" if part == "linear" and _key(row) in heads else part


def _wide(row: Kernel) -> bool:
    """Whether weights have 16 bits or more."""
    name = row.get("weight_dtype") or row["dtype"]
    return stored_bytes(canonical(name), row.get("weight_group", 0)) >= 2


def _per_sequence(row: Kernel) -> bool:
    """Whether a launch sees one sequence at a time."""
    return ops()[row["op"]][0].part == "attention"
