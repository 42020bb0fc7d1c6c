"""`diffenergy dvfs`: clocks for every kernel, phase or iteration."""

from ... import dvfs
from ...dvfs import DvfsRequest, Switching
from ...estimator import DEFAULT_GPU, start_jax
from ...hardware import read_gpu
from ...requests import part
from ..progress import progress
from ..run import Outcome, outcome
from .dvfs_flags import PUBLISHED, Flags


def run(flags: Flags) -> Outcome:
    """Plans the clock schedule."""
    start_jax(keep_compilations=flags.table is not None)
    more = {"switching": _switching(flags), "progress": progress}
    result = dvfs.plan(**part(DvfsRequest, flags, **more))
    return outcome(
        result,
        texts={".csv": result.to_csv, ".py": result.to_script},
        notes=[*result.notes, *_unrealistic(flags, result.rules.latency)],
    )


def _switching(flags: Flags) -> Switching | None:
    """Costs of a clock change; None for the default of `plan`."""
    latency, energy = flags.switch_latency, flags.switch_energy or 0.0
    if latency is None and (flags.switch_kind, energy) == ("stall", 0.0):
        return None
    if latency is None:
        latency = PUBLISHED if flags.table is None else 0.0
    if not isinstance(latency, str):
        return Switching(flags.switch_kind, latency, energy)
    if flags.gpu is None and flags.table is not None:
        raise ValueError(
            f"`--switch-latency` is {PUBLISHED}, but no GPU is given; give `--gpu`, or "
            "the latency in seconds."
        )
    gpu = read_gpu(str(flags.gpu or DEFAULT_GPU)).name
    return Switching.published(gpu, flags.switch_kind, energy)


def _unrealistic(flags: Flags, latency: float) -> list[str]:
    """Reasons why a clock script cannot be replayed on this GPU."""
    script = (flags.out or "").lower().endswith(".py")
    if not script or flags.granularity != "kernel" or latency > 0:
        return []
    return [
        "the script changes clocks between kernels as if that took no time; plan with "
        "a `--switch-latency` and `--switch-kind lookahead`, or by phase."
    ]
