"""`--trace` of `estimate`: checks of the file name, and writing."""

from .estimation import Result, Task
from .flags import Flags

_FLAG = "--trace"


def check(trace: str | None, flags: Flags) -> None:
    """Raises `ValueError` for a file that cannot be written; before any work."""
    from ..files import check_target
    from .output import writer

    if trace is None:
        return
    writer(trace, {".json": str}, _FLAG)
    if flags.out is not None and _same(trace, flags.out):
        raise ValueError(
            f"`{_FLAG}` and `--out` are both '{trace}'; give each a file of its own."
        )
    check_target(trace, flags.inputs)


def check_task(trace: str | None, task: Task) -> None:
    """Raises `ValueError` for several settings: a trace is of one."""
    if trace is not None and len(task.settings) > 1:
        raise ValueError(f"`{_FLAG}` is given with several settings; give one of each.")


def save(trace: str | None, task: Task, result: Result) -> None:
    """Writes the timeline of an estimate."""
    if trace is None:
        return
    from ..files import write_text_atomic
    from ..report._traces.trace import trace_text

    values, summary = task.card.values, result.summary
    share = summary["mem_clock_mhz"] * 1e6 / values["mem_clock"]
    text = trace_text(
        summary,
        result.kernels or [],
        result.listings,
        values["dram_bandwidth"] * share,
    )
    write_text_atomic(trace, text, inputs=task.flags.inputs)


def _same(a: str, b: str) -> bool:
    import os

    return os.path.realpath(a) == os.path.realpath(b)
