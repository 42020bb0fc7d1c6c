"""From the flags of a workload and of where it runs to a checked request."""

from typing import Any

from ..estimator import Task, prepare, start_jax


def task_of(flags: Any, **more: Any) -> Task:
    """The request of flags that have `model`, `gpu`, `workload` and the groups
    `request` and `point`."""
    start_jax()
    return prepare(
        flags.model,
        flags.gpu,
        workload=flags.workload,
        **vars(flags.point),
        **vars(flags.request),
        **more,
    )
