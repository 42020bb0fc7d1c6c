"""Flags of `diffenergy serve`."""

from typing import Annotated, Any, Final

from ...power_time import SMOOTH_HELP, STEP_HELP, PowerStep, Smooth
from ...requests import Excludes, Needs, part
from ...serving import (
    APART,
    NOT_SEARCHED,
    SEARCH,
    SKIP,
    TRACE,
    Apart,
    ListedRequest,
    LoadRequest,
    Objective,
    PoolsRequest,
    SearchRequest,
)
from ..flags import Json, out_file, plot_file, power_file

LISTED: Final = ("gpu", "num_gpus", "tp", "ep", "dtype", "engine")
"""Fields of `ListedRequest` that are lists, beside clocks and limits."""


class Flags(LoadRequest, PoolsRequest, ListedRequest, SearchRequest):
    """Estimate latencies, power and energy per token of a served model under load.

    The load is one of --max-batch (saturated), --concurrency (closed loop), --rate
    (open loop) and --trace. Exits with status 3 if the server cannot sustain the rate,
    and names the highest rate that it can. Lists are crossed and give a table. --search
    chooses GPUs, type, --tp, replicas, batch limit and clock within the limits.

    \b
    Examples:
      diffenergy serve qwen3-8b --rate 8 --input-len lognormal:512:1
      diffenergy serve qwen3-8b --rate 40 --slo-tpot 30ms --search energy
      diffenergy serve qwen3-8b --rate 8 --apart --decode max_batch=128
    """

    search: Annotated[Objective | None, SEARCH, NOT_SEARCHED] = None
    trace: Annotated[
        str | None,
        TRACE,
        Excludes(("optimize", "sensitivity"), "it is simulated; give a `rate`"),
    ] = None
    apart: Annotated[
        Apart,
        APART,
        Excludes(("trace", "optimize", "sensitivity"), "pools are in steady state"),
    ] = "no"
    skip_too_long: Annotated[bool, SKIP, Needs("trace")] = False
    power_trace: Annotated[str | None, power_file(), Needs("trace")] = None
    power_step: Annotated[PowerStep | None, STEP_HELP, Needs("trace")] = None
    smooth: Annotated[Smooth | None, SMOOTH_HELP, Needs("trace")] = None
    plot: Annotated[str | None, plot_file()] = None
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file(
            "Also write .json, or .csv (of --search: points for `fleet`; of lists).",
            ".json", ".csv",
        ),
    ] = None  # fmt: skip

    @property
    def lists(self) -> dict[str, tuple[Any, ...]]:
        """Lists of the request; none that were left out."""
        names = (*LISTED, "sm_clock", "mem_clock", "power_limit")
        lists = {name: getattr(self, name) for name in names}
        return {name: values for name, values in lists.items() if values}

    @property
    def several(self) -> bool:
        """Whether lists are crossed."""
        return any(len(values) > 1 for values in self.lists.values())

    @property
    def out_endings(self) -> tuple[str, ...]:
        """Endings of `--out`: tables are of several servers."""
        table = self.search is not None or (self.several and self.trace is None)
        return (".json", ".csv") if table else (".json",)

    def single(self, kind: Any, load: Any) -> dict[str, Any]:
        """Fields of a request of one server: the single value of each list."""
        lists = {name: x[0] for name, x in self.lists.items() if name in LISTED}
        return {**part(kind, self), **lists, "load": load}
