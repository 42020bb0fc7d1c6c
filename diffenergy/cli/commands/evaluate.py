"""`diffenergy evaluate`: predictions against measured runs."""

from ... import measurements
from ...estimator import start_jax
from ...fitting import evaluate
from ..flags.evaluate import Flags
from ..run import Outcome, outcome


def run(flags: Flags) -> Outcome:
    """Reads the files and compares every row."""
    start_jax(keep_compilations=True)
    table = measurements.read(flags.measurements, **vars(flags.table))
    result = evaluate(table, flags.corrections, flags.by or ())
    rows = {".csv": lambda: result.rows().to_csv(index=False)}
    return outcome(result, texts=rows)
