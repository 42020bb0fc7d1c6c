"""Which training plans there are of a number of GPUs."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..hardware import GpuCard
from ..nodes import Site
from ..plans import NOW, Host, Plan, read_plan
from ..workload import TrainedModel

_MICROBATCHES: Final = (1, 2, 4, 8)
_LONG: Final = 32_768
"""Tokens of a sequence from which GPUs share it (context parallelism)."""
_MOST_VIRTUAL: Final = 12
"""Virtual stages of a GPU: more than published plans have (8)."""
_ZERO: Final = (1, 3)
_RECOMPUTE: Final = ("none", "full")
_ALL: Final = ("1f1b", "zb-h1")
"""Schedules without virtual stages; GPipe takes as long as 1F1B with more memory."""
_VIRTUAL: Final = "interleaved"


@dataclasses.dataclass(frozen=True)
class Space:
    """What is searched: plans of `model` on `num_gpus` boards in hosts like `host` for
    steps of `global_batch` sequences of `input_len` tokens; `fixed`: keys of a plan
    that are given; `request`: how it trains (dtype, stack, ...); `site`: where the
    boards stand, None: nobody said."""

    model: TrainedModel
    card: GpuCard
    host: Host
    num_gpus: tuple[int, ...]
    global_batch: int
    input_len: int
    fixed: Mapping[str, Any]
    request: Mapping[str, Any]
    site: Site | None = None

    def plans(self) -> Iterator[Plan]:
        """All plans whose sizes divide what they share; whether the model can be
        divided so shows when it is."""
        for number in self.num_gpus:
            yield from self._of(number)

    def _of(self, number: int) -> Iterator[Plan]:
        layers = len(self.model.stack())
        for tp in self._sizes(
            "tp", (x for x in divisors(number) if x <= self.host.size)
        ):
            for pp in self._sizes("pp", divisors(number // tp)):
                for cp in self._sizes("cp", self._shares(number // tp // pp)):
                    # the embedding and the head may count as a layer each
                    # (`pipeline_layout`)
                    if number % (tp * pp * cp) or pp > layers + 2:
                        continue
                    dp = number // (tp * pp * cp)
                    if dp in self._sizes("dp", (dp,)):
                        yield from self._at(dict(tp=tp, pp=pp, cp=cp, dp=dp), layers)

    def _at(self, sizes: dict[str, int], layers: int) -> Iterator[Plan]:
        """Plans with these sizes."""
        pp, dp = sizes["pp"], sizes["dp"]
        several = dp * sizes["cp"] > 1
        for microbatch in self._sizes("microbatch", _MICROBATCHES):
            if self.global_batch % (dp * microbatch):
                continue
            batches = self.global_batch // (dp * microbatch)
            orders = self._sizes("schedule", _ALL if pp > 1 else _ALL[:1])
            ways = [(1, x) for x in orders if x != _VIRTUAL]
            # an interleaved schedule needs a multiple of pp micro-batches
            if batches % pp == 0 and self.fixed.get("schedule", _VIRTUAL) == _VIRTUAL:
                every = layers + self.model.further_layers
                ways += [(v, _VIRTUAL) for v in _virtual(every, pp)]
            ways = [(v, x) for v, x in ways if v in self._sizes("vp", (v,))]
            for (vp, schedule), ep, zero, recompute in itertools.product(
                ways,
                self._sizes("ep", self._experts(sizes)),
                self._sizes("zero", _ZERO if several else _ZERO[:1]),
                self._sizes("recompute", _RECOMPUTE),
            ):
                named = {"schedule": schedule} if schedule == "zb-h1" else {}
                if ep > 1 and recompute != "full" and (vp > 1 or pp == 1 < batches):
                    named |= self._hidden_experts
                chosen = dict(vp=vp, ep=ep, zero=zero, recompute=recompute, **named)
                yield from _readable(
                    {**self.fixed, **sizes, "microbatch": microbatch, **chosen}
                )

    @functools.cached_property
    def _hidden_experts(self) -> dict[str, str]:
        """Keys by which experts' exchange runs beside another micro-batch, which is
        never slower, as far as software can and nothing else is given."""
        hidden = {"overlap": "tp+ep+dp", "graphs": "all"}
        able = Plan(software=self.fixed.get("software", NOW)).dispatcher != "plain"
        return {x: y for x, y in hidden.items() if able and x not in self.fixed}

    def _sizes(self, key: str, usual: Any) -> tuple[Any, ...]:
        """What a key may be: as given, or what is usual."""
        return (self.fixed[key],) if key in self.fixed else tuple(usual)

    def _shares(self, rest: int) -> tuple[int, ...]:
        """GPUs that may share a sequence: powers of two."""
        if self.input_len < _LONG:
            return (1,)
        # each GPU of a shared sequence has a pair of equal parts
        return tuple(x for x in _doublings(rest) if self.input_len % (2 * x) == 0)

    def _experts(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """GPUs that may share the experts: powers of two."""
        if self.model.default_routing() is None:
            return (1,)
        return tuple(_doublings(sizes["tp"] * sizes["cp"] * sizes["dp"]))


def _readable(values: Mapping[str, Any]) -> Iterator[Plan]:
    """The plan, where its keys do not contradict each other."""
    try:
        plan = read_plan(values, training=True)
    except ValueError:
        return
    if plan is not None:
        yield plan


def divisors(number: int) -> list[int]:
    """Whole numbers that divide one."""
    return [x for x in range(1, number + 1) if number % x == 0]


def _doublings(most: int) -> list[int]:
    """Powers of two that divide a number."""
    return [2**i for i in range(most.bit_length()) if most % 2**i == 0]


def _virtual(layers: int, pp: int) -> list[int]:
    """Virtual stages of each of `pp` GPUs that have equally many layers each, those
    behind counted, with or without the ends."""
    if pp == 1:
        return []
    return [
        v
        for v in range(2, _MOST_VIRTUAL + 1)
        if layers % (pp * v) == 0 or (layers + 2) % (pp * v) == 0
    ]
