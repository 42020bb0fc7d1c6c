"""The part of the page on a training step of many GPUs."""

from collections.abc import Mapping, Sequence

from ..._format import Entry, digits, percent
from ..._tables.steps import exchanges, plan_text, stage_rows
from ..markup import paragraph, sentence, si, tag
from .tables import table


def step_part(summary: Entry, drawn: Mapping[str, str], names: Sequence[str]) -> str:
    """Sentence, charts (those of `names` that are drawn), exchanges and stages."""
    return "".join(
        [
            paragraph(_sentence(summary), None),
            *(drawn[name] for name in names if name in drawn),
            tag(
                "div",
                _exchanges(summary),
                table("stages", "Stages", *stage_rows(summary, "power of a GPU")),
            ),
        ]
    )


def _sentence(summary: Entry) -> str:
    """What the plan makes of its GPUs, in words."""
    mfu = summary["mfu"]
    used = "" if mfu is None else f"{percent(mfu)} of their peak FLOP are the model's; "
    return sentence(
        f"{summary['num_gpus']} GPUs ({plan_text(summary['plan'])}) take "
        f"{si(summary['step_time_s'], 's')} a step of {summary['global_batch']} "
        f"sequences, {digits(summary['tokens_per_s_per_gpu'])} tokens/s and "
        f"{summary['power_per_gpu_w']:.0f} W each; {used}the pipeline idles or waits "
        f"for a slower stage {percent(summary['bubble'])} of its time, and exchanges "
        f"that nothing hides are {percent(summary['exposed_communication'])} of the "
        "step"
    )


def _exchanges(summary: Entry) -> str:
    entries = exchanges(summary)
    if not entries:
        return ""
    columns = (
        ("communication of the mean GPU", "name"),
        ("in all", "total_s", "s"),
        ("hidden", lambda x: max(x["total_s"] - x["exposed_s"], 0.0), "s"),
        ("exposed", "exposed_s", "s"),
        ("of the step", lambda x: x["exposed_s"] / summary["time_s"], percent),
    )
    return table("communication", "Communication", columns, entries)
