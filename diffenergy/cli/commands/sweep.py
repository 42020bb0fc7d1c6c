"""`diffenergy sweep`: any number of estimates, in blocks, here or on a cluster."""

from collections.abc import Mapping
from typing import Any

from ... import sweeps
from ...estimator import start_jax
from ...requests import part
from ...sweeps import RunRequest
from ..flags import told
from ..interruption import keeping
from ..progress import rows
from ..run import Outcome
from .sweep_flags import Flags


def run(flags: Flags) -> Outcome:
    """Runs the sweep of the flags."""
    if flags.ray is None:
        start_jax(keep_compilations=True)
    try:
        with keeping(), told(Flags, _as_typed), rows() as show:
            found = sweeps.run(
                flags.spec, flags.target, **part(RunRequest, flags, told=show)
            )
    except KeyboardInterrupt:
        return Outcome(
            interrupted="interrupted; whole blocks are kept: the same command with "
            "`--resume` goes on."
        )
    return Outcome(content=found, blocks=lambda: [_line(found)])


def _as_typed(text: str) -> str:
    """What the room says of `out`, for who typed `--out`."""
    return f"`--out`{text[5:]}" if text.startswith("`out`") else text


def _line(found: Mapping[str, Any]) -> str:
    rate = found["rows_per_s"]
    speed = f", {rate:,.0f} rows/s" if rate else ""
    wrong = (
        f", {found['errors']:,} of them without an answer" if found["errors"] else ""
    )
    return (
        f"{found['out']}: {found['rows']:,} rows{wrong}; {found['computed']} of "
        f"{found['blocks']} blocks computed in {found['seconds']:.1f} s{speed}"
    )
