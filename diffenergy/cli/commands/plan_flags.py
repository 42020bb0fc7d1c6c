"""Flags of `diffenergy plan`."""

from typing import Annotated

from ...parallel import ClocksRequest, SearchRequest
from ...requests import Excludes
from ..arguments import GPU, MODEL
from ..flags import Json, out_file, plot_file


class Flags(SearchRequest, ClocksRequest):
    """The best plan with which GPUs train MODEL; clocks for the stages of one.

    All plans of --num-gpus are priced: tensor, pipeline, context, expert and data
    parallelism, micro-batches, ZeRO, recomputation, schedules. Exits with 3 where none
    keeps the limits, and says the least that one keeps.

    With --stage-clocks every instruction of a step of --plan has the lowest clock with
    which the step takes no longer, beside the bound of a linear program. --out FILE.csv
    has the columns of Perseus, FILE.py is what Zeus's PointSolution reads.

    \b
    Examples:
      diffenergy plan llama-3.1-8b --num-gpus 64 --global-batch 256 --json
      diffenergy plan gpt2 --num-gpus 4,8 --global-batch 32 --objective energy
      diffenergy plan gpt2 --plan pp=4 --global-batch 32 --stage-clocks
    """

    model: Annotated[str, MODEL]
    gpu: Annotated[str | None, GPU] = None
    stage_clocks: Annotated[
        bool,
        "Clocks for the stages of --plan.",
        Excludes(
            (
                "objective",
                "max_memory",
                "max_power",
                "max_swing",
                "max_ramp",
                "node",
                "sensitivity",
            )  # fmt: skip
        ),
    ] = False
    plot: Annotated[
        str | None, plot_file("Also draw all plans, or the step with its clocks.")
    ] = None
    as_json: Json = False
    out: Annotated[
        str | None,
        out_file(
            "Also write .json; of clocks .csv (as Perseus) or .py (as Zeus reads it).",
            ".json", ".csv", ".py",
        ),
    ] = None  # fmt: skip

    @property
    def out_endings(self) -> tuple[str, ...]:
        """Endings of `--out`."""
        return (".json", ".csv", ".py") if self.stage_clocks else (".json",)
