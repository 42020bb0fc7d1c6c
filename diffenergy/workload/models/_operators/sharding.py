"""How several GPUs divide a layer, and what they exchange.

Tensor parallelism (arXiv 1909.08053): of a pair of linear layers the first is divided
by its outputs (`Columns`), the second by its inputs (`Rows`), whose partial sums an
all-reduce adds up; in training also the input's gradients of the first. Sequence
parallelism (arXiv 2205.05198) has what lies between pairs on a share of the tokens: an
all-gather before the first, a reduce-scatter behind the second, and backward the same
two mirrored. Experts: see `experts`.
"""

import dataclasses
from collections.abc import Sequence

from ..._kernel import Kernel, Number
from .memory import element_bytes
from .passes import ForwardPass


@dataclasses.dataclass(frozen=True)
class ModelSplit:
    """`tp` GPUs share every layer; `ep` share its experts: some of the same GPUs, or
    (`ep` > `tp`) those of several replicas, which then route their tokens together.

    Training: `cp` share the tokens of every sequence; `etp` the features of an expert
    (None: what `ep` leaves of `tp`); `sequence`: what is not divided by `tp` runs on a
    share of the tokens (Megatron's sequence parallelism).
    """

    tp: int = 1
    ep: int = 1
    cp: int = 1
    etp: int | None = None
    sequence: bool = False

    @property
    def replicas(self) -> int:
        """Replicas whose tokens meet in the experts."""
        return max(self.ep // self.tp, 1)

    @property
    def inner(self) -> int:
        """GPUs that share an expert."""
        return max(self.tp // self.ep, 1) if self.etp is None else self.etp

    @property
    def parts(self) -> int:
        """GPUs that divide the tokens between pairs of layers."""
        return self.tp if self.sequence else 1


@dataclasses.dataclass(frozen=True)
class ModelShare:
    """The part of a model on one GPU: of its layers in `stages`, one after the other,
    that at `stage` (None: all, with what passes between them), divided as `split` says.
    `far` of the stages begin in another host, over a network of `rate` B/s.

    Training: `spans`: (start, stop) places of its layers, span by span, where they are
    not as even as can be; `shards` GPUs divide the optimizer's state of what is no
    expert, `expert_shards` that of the experts (ZeRO).
    """

    split: ModelSplit = ModelSplit()
    stages: int = 1
    stage: int | None = None
    far: int = 0
    rate: float = 0.0
    spans: tuple[tuple[int, int], ...] | None = None
    shards: int = 1
    expert_shards: int = 1

    @property
    def is_first(self) -> bool:
        """Whether it has the embedding."""
        return not self.stage

    @property
    def is_last(self) -> bool:
        """Whether it has the head."""
        return self.stage in (None, self.stages - 1)

    def layers(self, number: int) -> Sequence[int]:
        """Places of its layers of `number`: its `spans`, else as even as can be, the
        first stages having one more.

        >>> ModelShare(stages=4, stage=1).layers(10)
        range(3, 6)
        """
        if self.spans is not None:
            return [place for span in self.spans for place in range(*span)]
        if self.stage is None:
            return range(number)
        each, more = divmod(number, self.stages)
        start = self.stage * each + min(self.stage, more)
        return range(start, start + each + (self.stage < more))

    def sends(self, tokens: int, width: int, dtype: str) -> list[Kernel]:
        """Rows of the transfers of all stages to the next."""
        if self.stage is not None:
            return []
        sent = collective("send_recv", tokens, width, 2, dtype)
        over = [row | {"link_rate": self.rate} for row in sent]
        return [*((self.stages - 1 - self.far) * sent), *(self.far * over)]


@dataclasses.dataclass(frozen=True)
class Columns:
    """Each GPU makes some of the outputs: of `grouped` ones those of its share of the
    `groups` (heads of keys and values), one of them at least; all of `whole` ones."""

    grouped: int = 0
    groups: int = 1
    whole: int = 0

    def share(self, outputs: int, ranks: int) -> int:
        """Outputs of one of `ranks` GPUs.

        >>> Columns(grouped=2 * 2 * 128, groups=2).share(8 * 128 + 2 * 2 * 128, 4)
        512
        """
        single = divide(outputs - self.grouped - self.whole, ranks, "features")
        group = self.grouped // self.groups
        return single + group * divide_or_copy(self.groups, ranks) + self.whole

    def share_parts(self, parts: Sequence[int], ranks: int) -> tuple[int, ...]:
        """The same of each of several layers that make these outputs together; the last
        ones are grouped.

        >>> Columns(grouped=2 * 2 * 128, groups=2).share_parts((1024, 256, 256), 4)
        (256, 128, 128)
        """
        left, shares = self.grouped, []
        for part in reversed(parts):
            grouped = min(left, part)
            left -= grouped
            columns = dataclasses.replace(self, grouped=grouped, whole=0)
            shares.append(columns.share(part, ranks))
        return tuple(reversed(shares))


@dataclasses.dataclass(frozen=True)
class Rows:
    """Each GPU has some of the inputs, and an all-reduce adds up the partial sums.

    `joined`: with those of the routed experts beside, where these have one.
    """

    joined: bool = False


def divide(number: int, ranks: int, what: str, key: str = "tp") -> int:
    """Share of one of `ranks` GPUs, the value of `key` in a plan.

    Raises `ValueError` if they do not divide the `number`.
    """
    if number % ranks:
        most = max(x for x in range(1, ranks) if number % x == 0)
        raise ValueError(
            f"`{key}` is {ranks}, which does not divide the {number:,} {what} of a "
            f"layer; the next smaller one that does is {most}."
        )
    return number // ranks


def divide_or_copy(number: int, ranks: int, what: str = "key and value heads") -> int:
    """Share of one of `ranks` GPUs, of which several may have a copy each."""
    return 1 if ranks % number == 0 else divide(number, ranks, what)


def collective(
    kind: str, tokens: Number, width: Number, ranks: int, dtype: str, axis: str = ""
) -> list[Kernel]:
    """Row that moves `width` values a token, by default of no named `axis` of a plan;
    none among one GPU."""
    if ranks == 1:
        return []
    size = tokens * width * element_bytes(dtype)
    row = dict(op="collective", collective=kind, bytes=size, num_gpus=ranks)
    named = {"axis": axis} if axis else {}
    return [row | dict(dtype=dtype, count=1) | named]


def all_reduce(tokens: Number, width: Number, ranks: int, dtype: str) -> list[Kernel]:
    """Row that adds up partial sums by the kernels of serving engines."""
    return collective("custom_all_reduce", tokens, width, ranks, dtype)


def reduce_rows(run: ForwardPass, width: Number, split: ModelSplit) -> list[Kernel]:
    """Row that adds up partial sums of `width` values a token among the GPUs of a
    layer."""
    if not run.train:
        return all_reduce(run.tokens, width, split.tp, run.values)
    kind = "reduce_scatter" if split.sequence else "all_reduce"
    return collective(kind, run.tokens, width, split.tp, run.values, "tp")


def gather_rows(run: ForwardPass, width: Number, split: ModelSplit) -> list[Kernel]:
    """Row that gathers `width` values of all tokens, of which each GPU of a layer has a
    share."""
    if not (run.train and split.sequence):
        return []
    return collective("all_gather", run.tokens, width, split.tp, run.values, "tp")
