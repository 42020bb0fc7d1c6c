"""What a fit has learnt: constants that the data measure, those left at their prior,
those that the data cannot tell apart, and the measurements that would."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Float

from ..corrections import CONSTANTS, SENSOR_CONSTANTS
from ._parameters import SENSOR, Parameter, Parameters

Status = Literal["measured", "partly", "open"]

_MEASURED, _OPEN = 0.3, 0.8
"""Posterior over prior sd: below, data outweigh the prior by ten; above, they say next
to nothing."""
_LEFT: Final = 3.0
"""Prior sds from which on a value contradicts its prior."""
_UNDECIDED: Final = 0.5
"""Share of the prior variance that an open combination keeps."""
_INFLATION, _WEIGHT, _MEMBERS = 2.0, 0.2, 4
"""An open combination: least growth of a member's variance by not knowing the others,
least weight of a member, most members."""

_CLOSING: Final[Mapping[str, str]] = {
    "tensor_efficiency": "bf16 GEMM of at least 8 waves",
    "tf32_efficiency": "tf32 and bf16 GEMM of at least 8 waves",
    "fp8_": "bf16, fp8 and block-scaled fp8 GEMM of at least 8 waves",
    "operand_half_tile": "GEMM with M below 128",
    "sm_feed": "GEMM with M below 128 and large K",
    "tile_load_scale": "large GEMM beside a copy that fits in L2",
    "fma_efficiency": "fp32 GEMM of at least 8 waves",
    "fp32_dual": "fp32 GEMM on a GA10x or Ada GPU (A10, L40S)",
    "fma_step_cycles": "fp32 GEMM of one wave over a range of K",
    "depthwise_efficiency": "depthwise convolutions of several sizes",
    "misalignment": "GEMM with odd N and K",
    "sharpness": "GEMM near the ridge, where math and memory take equal time",
    "sharpness_stream": "one copy of at least 1 GB at 8 SM clocks",
    "l2_": "GEMM and element-wise kernels of 8 sizes across that of L2",
    "l2_efficiency": "copies that fit in L2, at the top SM clock",
    "wave_traffic": "GEMM of many waves with operands beyond L2",
    "dram_efficiency": "one copy of at least 1 GB at the top SM clock",
    "in_flight": "GEMM with fewer tiles than SMs, at two SM clocks",
    "stream_feed": "one copy of at least 1 GB at three SM clocks, one of them low",
    "reduction_reads": "softmax and layer norm of at least 100 MB",
    "reduction_latency": "softmax and layer norm of few, long rows",
    "launch_": "small kernels at two clocks",
    "gemm_cycles": "small GEMM in a loop of one kernel, at two clocks",
    "gemm_eager": "a kernel trace of an eager pass",
    "own_cycles": "GEMM with small K and few waves",
    "step_cycles": "GEMM of one wave over a range of K",
    "store_exposed": "GEMM with large outputs and small K",
    "split_cycles": "GEMM with small M and N and large K",
    "choice_": "kernel names (tile, split) of the library's GEMM over many shapes",
    "dispatch_": "small eager passes of two model families",
    "prefill_": "own head layouts of that attention kernel family, prefill",
    "prefill_cycles": "prefill attention of one short sequence, at two clocks",
    "decode_": "own head layouts of that attention kernel family, decode",
    "decode_flow": "decode attention of few sequences with a long context",
    "decode_cycles": "decode attention with a short context, at two clocks",
    "decode_schedule": "decode attention with a short context, batch 1 to 992",
    "transpose_rate": "prefill attention in fp8 and in bf16",
    "moe_": "bf16 MoE layers with 16 to 1024 tokens per expert",
    "moe_align": "MoE layers of many tokens spread over several GPUs",
    "moe_misaligned": "MoE layers with an inner size that is no multiple of 16",
    "energy_tensor": "power of a bf16 GEMM below the power limit, at two SM clocks",
    "energy_tf32": "power of a tf32 and a bf16 GEMM below the power limit",
    "energy_fp8": "power of an fp8 and a bf16 GEMM below the power limit",
    "energy_fma": "power of an fp32 GEMM below the power limit",
    "energy_sfu": "power of prefill attention with small heads",
    "energy_issue": "power of element-wise kernels that fit in L2, at two SM clocks",
    "energy_smem": "power of one GEMM in a small and in a large tile",
    "energy_l2": "power of one copy that fits in L2 and of one of at least 1 GB",
    "energy_dram": "one copy of at least 1 GB at two SM clocks above the voltage knee",
    "energy_link": "power of an all-reduce over NVLink",
    "energy_launch": "power of a stream of empty kernels",
    "energy_tile": "power of a kernel of many empty CTAs",
    "core_energy": "five power readings of different kernels",
    "dynamic_energy": "five power readings of different kernels",
    "sm_clock_energy": "power of a GEMM and of a copy of at least 1 GB at 8 SM clocks",
    "leakage": "power of a core-bound kernel at 8 clocks with the temperature logged",
    "leakage_efold": "power of a core-bound kernel, cold and hot, temperature logged",
    "activity_": "activities of core-bound and memory-bound programs at 8 SM clocks",
    "memory_knee": "one copy of at least 1 GB at 8 SM clocks, half of them low",
    "memory_idle": "idle readings at two memory clocks",
    "voltage_": "power of a core-bound kernel at 8 SM clocks",
    "simt_": "fp32 GEMM of known tile and grid, from one tile to many waves",
    "tiled_": "one fp32 GEMM in a few hundred tiles of a tuner",
    "zero_saving": "power of a GEMM with random and with half-zero operands",
    "idle_scale": "an idle reading with a context",
}
"""What measures a constant, by its name or the longest prefix of it (studies behind
`docs/physics.md`; no study measured the energies of a launch and of a CTA)."""
_LEADS: Final[Mapping[str, str]] = {
    "J": "energy: ",
    "J/B": "energy per byte: ",
    "J/FLOP": "energy per FLOP: ",
    "J/cycle": "energy per cycle: ",
}
_ADDED: Final = ({*_LEADS, "1/TDP"}, {"s", "cycles"})
"""Units of constants that add up, to an energy or to a time."""


@dataclasses.dataclass(frozen=True)
class ConstantReport:
    """One free number after a fit.

    `value`: in natural units, or the factor of a tag (x; of the odds for a share).
    `prior_sd`, `posterior_sd`: in fitted space; `ratio`: posterior over prior.
    `shift`: distance from the prior centre in prior sds; `left_prior`: it contradicts
    the prior. `measurement`: what would close it.
    """

    parameter: Parameter
    value: float
    unit: str
    prior_sd: float
    posterior_sd: float
    ratio: float
    shift: float
    left_prior: bool
    status: Status
    measurement: str


@dataclasses.dataclass(frozen=True)
class Direction:
    """Constants that the data touch but cannot tell apart.

    `weights`: unit vector, in prior sds, along which the readings stay the same;
    `ratio`: posterior over prior sd along it. `measurement`: what would close it.
    """

    parameters: tuple[Parameter, ...]
    weights: tuple[float, ...]
    ratio: float
    text: str
    measurement: str


@dataclasses.dataclass(frozen=True)
class Identifiability:
    """What a fit has learnt about each free number and their combinations."""

    constants: tuple[ConstantReport, ...]
    directions: tuple[Direction, ...]

    def lines(self) -> list[str]:
        """Sentences for a terminal: counts, contradicted priors, open combinations,
        other constants left at their prior."""
        counts = [
            f"{sum(c.status == status for c in self.constants)} {status}"
            for status in ("measured", "partly", "open")
        ]
        left = [_left(c) for c in self.constants if c.left_prior]
        traded = [f"{d.text}; {d.measurement} would close it" for d in self.directions]
        named = {p for d in self.directions for p in d.parameters}
        wanted: dict[str, list[str]] = {}
        for c in self.constants:
            if c.status == "open" and c.parameter not in named:
                wanted.setdefault(c.measurement, []).append(_words(c.parameter))
        still = [
            f"left at the prior: {'; '.join(names)}: {measurement} would close "
            + ("it" if len(names) == 1 else "them")
            for measurement, names in wanted.items()
        ]
        return [f"constants: {', '.join(counts)}", *left, *traded, *still]

    def to_json(self) -> dict[str, Any]:
        """Plain lists and dicts; `open_directions` name constants as level/constant."""
        constants, directions = [], []
        for c in self.constants:
            plain = dataclasses.asdict(c)
            p = plain.pop("parameter")
            constants.append({"level": p["tag"], "constant": p["constant"], **plain})
        for d in self.directions:
            plain = dataclasses.asdict(d) | {"weights": list(d.weights)}
            del plain["parameters"]
            directions.append({"constants": [str(p) for p in d.parameters], **plain})
        return {"constants": constants, "open_directions": directions}


def closing(constant: str) -> str:
    """The measurement that would close a constant."""
    return _CLOSING[max(filter(constant.startswith, _CLOSING), key=len)]


def report(
    parameters: Parameters,
    z: Float[np.ndarray, " p"],
    covariance: Float[np.ndarray, "p p"],
) -> Identifiability:
    """What a fit has learnt.

    `z`, `covariance`: mode and covariance of the posterior in fitted space, prior
    included: covariance = (JᵀJ + diag(1/sd²))⁻¹.
    """
    sd = parameters.sd()
    numbers = zip(
        parameters.free,
        z.tolist(),
        parameters.centre().tolist(),
        np.sqrt(np.diag(covariance)).tolist(),
        strict=True,
    )
    scaled = covariance / np.outer(sd, sd)
    return Identifiability(
        tuple(_constant(*number) for number in numbers),
        tuple(_direction(parameters.free, scaled, g) for g in _groups(scaled)),
    )


def _constant(p: Parameter, z: float, centre: float, sd: float) -> ConstantReport:
    ratio, shift = sd / p.sd, (z - centre) / p.sd
    return ConstantReport(
        parameter=p,
        value=float(1 / (1 + np.exp(-z)) if p.share else np.exp(z)),
        unit="x" if _is_factor(p) else _about(p)["unit"],
        prior_sd=p.sd,
        posterior_sd=sd,
        ratio=ratio,
        shift=shift,
        left_prior=abs(shift) > _LEFT,
        status=_status(ratio),
        measurement=_closing(p),
    )


def _status(ratio: float) -> Status:
    if ratio < _MEASURED:
        return "measured"
    return "partly" if ratio < _OPEN else "open"


def _is_factor(p: Parameter) -> bool:
    """Whether a number multiplies a constant instead of being one."""
    return p.tag != "global" and not p.tag.startswith(SENSOR)


def _about(p: Parameter) -> Mapping[str, Any]:
    known = SENSOR_CONSTANTS if p.tag.startswith(SENSOR) else CONSTANTS
    return known[p.constant].metadata


def _closing(p: Parameter) -> str:
    if p.tag.startswith(SENSOR):
        return f"power of one kernel in runs of 0.1 to 10 s, {_level(p)}"
    where = "" if p.tag == "global" else f", on a GPU of {p.tag}"
    return closing(p.constant) + where


def _words(p: Parameter) -> str:
    about = _about(p)
    what = _LEADS.get(about["unit"], "") + about["what"].partition(";")[0]
    level = "" if p.tag == "global" else f", {_level(p)}"
    return f"{what} ({p.constant}{level})"


def _level(p: Parameter) -> str:
    if p.tag.startswith(SENSOR):
        return f"as {p.tag.removeprefix(SENSOR)} was read"
    return f"factor of {p.tag}"


def _left(c: ConstantReport) -> str:
    side = "above" if c.shift > 0 else "below"
    return (
        f"left its prior: {_words(c.parameter)} is {c.value:.3g} {c.unit}, "
        f"{abs(c.shift):.1f} prior sds {side} the centre"
    )


def _groups(scaled: Float[np.ndarray, "p p"]) -> list[tuple[int, ...]]:
    """Members of each open combination; `scaled`: covariance in prior sds.

    They are groups of constants, none measured alone, of which data measure one
    combination and leave another open. Groups that overlap are joined if that is again
    such a group; else a group that shares two members is dropped.
    """
    blurred = np.flatnonzero(np.sqrt(np.diag(scaled)) >= _MEASURED)
    c = scaled[np.ix_(blurred, blurred)]
    found = {g for seed in range(len(c)) if (g := _partners(c, seed))}

    def openness(g: Sequence[int]) -> float:
        return _open_line(c[np.ix_(g, g)])[1]

    groups: list[tuple[int, ...]] = []
    for g in sorted(found, key=lambda g: (-round(openness(g), 1), len(g), g)):
        for other in [o for o in groups if set(o) & set(g)]:
            union = tuple(sorted({*other, *g}))
            if len(union) <= _MEMBERS and _traded(c[np.ix_(union, union)]):
                groups.remove(other)
                g = union
        if all(len(set(o) & set(g)) < 2 for o in groups):
            groups.append(g)
    undecided = [g for g in groups if openness(g) ** 2 > _UNDECIDED]
    return [tuple(int(i) for i in blurred[list(g)]) for g in undecided]


def _partners(c: Float[np.ndarray, "p p"], seed: int) -> tuple[int, ...] | None:
    """Fewest constants, the seed among them, that trade against one another.

    Partners are those whose knowledge would narrow the seed most (forward selection).
    """
    members, left = [seed], c
    while len(members) < min(_MEMBERS, len(c)):
        gain = left[seed] ** 2 / np.maximum(np.diag(left), 1e-12)
        gain[members] = -1.0
        j = int(np.argmax(gain))
        members.append(j)
        if _traded(c[np.ix_(members, members)]):
            return tuple(sorted(members))
        left = left - np.outer(left[:, j], left[j]) / max(left[j, j], 1e-12)
    return None


def _traded(block: Float[np.ndarray, "m m"]) -> bool:
    """Whether data measure a combination of the members, to which each belongs."""
    return bool(
        np.linalg.eigvalsh(block)[0] < _MEASURED**2
        and np.all(_inflation(block) >= _INFLATION)
        and np.all(np.abs(_open_line(block)[0]) >= _WEIGHT)
    )


def _inflation(block: Float[np.ndarray, "m m"]) -> Float[np.ndarray, " m"]:
    """Variance of each number over its variance with the others known (variance
    inflation; Belsley, Kuh, Welsch, Regression Diagnostics, 1980, chapter 3)."""
    return np.diag(block) * np.diag(np.linalg.inv(block))


def _open_line(
    block: Float[np.ndarray, "m m"],
) -> tuple[Float[np.ndarray, " m"], float]:
    """Unit vector along which all move with the one that the others blur most, and the
    posterior over the prior sd along it.

    Unlike the last eigenvector it is defined where several combinations are open.
    """
    line = block[np.argmax(np.round(_inflation(block), 6))]
    line = line / np.linalg.norm(line) * (-1.0 if line[0] < 0 else 1.0)
    return line, float(np.sqrt(line @ block @ line))


def _direction(
    free: Sequence[Parameter], scaled: Float[np.ndarray, "p p"], group: Sequence[int]
) -> Direction:
    members, block = [free[i] for i in group], scaled[np.ix_(group, group)]
    line, ratio = _open_line(block)
    names = " against ".join(_words(p) for p in members)
    text = f"not told apart: {names}: {_held(members, block, line)}"
    if len({p.constant for p in members}) == 1:  # a factor against what it multiplies
        where = f"on a GPU that is not of {members[-1].tag}"
        wanted = [f"{closing(members[0].constant)}, {where},"]
    else:  # as many members as there are open combinations, the widest
        undecided = int(np.sum(np.linalg.eigvalsh(block) > _UNDECIDED))
        widest = np.argsort(-np.round(np.diag(block), 6), kind="stable")
        wanted = [_closing(members[i]) for i in widest[:undecided]]
    measurement = " and ".join(dict.fromkeys(wanted))
    return Direction(tuple(members), tuple(line.tolist()), ratio, text, measurement)


def _held(
    members: Sequence[Parameter],
    block: Float[np.ndarray, "m m"],
    line: Float[np.ndarray, " m"],
) -> str:
    """What the data do know of the members."""
    spread, axes = np.linalg.eigh(block)
    if spread[1] >= _MEASURED**2 and abs(np.sum(np.sign(axes[:, 0]))) == len(members):
        units = {_about(p)["unit"] for p in members}
        if len({p.constant for p in members}) == 1:
            return "the data hold their product"
        if any(units <= kind for kind in _ADDED):
            return "the data hold their sum"
    names = [p.constant if p.tag == "global" else str(p) for p in members]
    signs = ["more" if w > 0 else "less" for w in line]
    moves = [f"{sign} {name}" for sign, name in zip(signs, names, strict=True)]
    return f"{' and '.join(moves)} give the same readings"
