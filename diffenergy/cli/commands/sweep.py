"""`diffenergy sweep`: any number of estimates, in blocks, here or on a cluster."""

from collections.abc import Mapping
from typing import Any

from ... import sweeps
from ...estimator import start_jax
from ...requests import part
from ...sweeps import RunRequest
from ..flags import naming_flags
from ..interruption import keeping
from ..progress import rows
from ..run import Outcome
from .sweep_flags import Flags


def run(flags: Flags) -> Outcome:
    """Runs the sweep of the flags."""
    if flags.ray is None:
        start_jax(keep_compilations=True)
    try:
        with keeping(), naming_flags(Flags, _as_typed), rows() as show:
            summary = sweeps.run(
                flags.spec, flags.target, **part(RunRequest, flags, progress=show)
            )
    except KeyboardInterrupt:
        return Outcome(
            interrupted="interrupted; whole blocks are kept: the same command with "
            "`--resume` goes on."
        )
    return Outcome(content=summary, blocks=lambda: [_line(summary)])


def _as_typed(text: str) -> str:
    """Sentence of the room with `--out` for `out`."""
    return f"`--out`{text[5:]}" if text.startswith("`out`") else text


def _line(summary: Mapping[str, Any]) -> str:
    rate = summary["rows_per_s"]
    speed = f", {rate:,.0f} rows/s" if rate else ""
    wrong = (
        f", {summary['errors']:,} of them without an answer"
        if summary["errors"]
        else ""
    )
    return (
        f"{summary['out']}: {summary['rows']:,} rows{wrong}; {summary['computed']} of "
        f"{summary['blocks']} blocks computed in {summary['seconds']:.1f} s{speed}"
    )
