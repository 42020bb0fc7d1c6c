"""From what is asked of an estimate by name to its result."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax

from ..compiling import kept
from ..corrections import NEAR, CorrectionsFile, Trust, prior_file, read_corrections
from ..hardware import GpuCard, GpuSpec, OperatingPoint, read_gpu, with_fields
from ..imports import ImportResult
from ..plans import (
    Host,
    Plan,
    host_of,
    read_plan,
)
from ..results import Infeasible
from ..workload import Listing, Workload
from ..workload._listing import read_listings, select_listing
from ..workload._unlisted import complete
from ..workload._workload import assemble, pad_size
from ._answer import steps as _steps
from ._answer import summary as _summary
from ._answer.records import Estimate
from ._answer.summary import EstimateResult
from ._answer.whole_run import check_tokens
from ._estimate import estimate_once
from ._packed import packed
from ._packed import run as run_packed
from ._settings import (
    Setting,
    operating_points,
    settings,
    unusual,
)
from ._warnings import lacking
from ._work import (
    ANSWERED,
    OTHERS,
    REQUEST,
    Sharing,
    TrainingWork,
    brought_work,
    listed_work,
    modelled_work,
)

DEFAULT_GPU: Final = "h100-sxm"


@dataclasses.dataclass(frozen=True)
class Task:
    """A checked request, ready to run."""

    card: GpuCard
    corrections: CorrectionsFile
    settings: list[Setting]
    listings: list[Listing]
    about: dict[str, Any]
    trust: Trust
    warnings: list[str]
    memory: dict[str, Any]
    """Bytes by part, their total, the capacity and whether it fits; None: not known."""
    detail: bool = False
    plan: Plan | None = None
    stages: list[dict[str, int | float]] | None = None
    """Layers and bytes of every stage of the plan."""
    step: TrainingWork | None = None
    """Of training on several GPUs."""
    tokens: int | float | None = None
    """Tokens of a whole training run, if it is asked for."""

    @property
    def gpu(self) -> GpuSpec:
        """The GPU's numbers with the constants asked for."""
        return self.card.served(self.corrections)

    def estimates(
        self, gpu: GpuSpec | None = None, like: Workload | None = None
    ) -> Estimate:
        """The numbers alone; of several settings on a leading axis, filled up with
        the last one. `gpu`: other numbers than the task's; `like`: a workload whose
        program (`run` of `_packed`) is used if it has room for this one."""
        gpu = self.gpu if gpu is None else gpu
        work = None if like is None else packed(self.listings, like)
        if work is not None and len(self.settings) == 1:
            point = operating_points(self.settings)
            return run_packed(work, gpu, point, len(self.listings))
        return _estimates(assemble(self.listings), gpu, self.settings)

    def run(self, like: Workload | None = None) -> EstimateResult:
        """Runs the model (`like`: see `estimates`). Raises `Infeasible` if no power
        limit can be kept."""
        estimates = self.estimates(like=like)
        if len(self.settings) > 1:
            found = _summary.sweep(self, estimates)
            if found["best_energy"] is None:
                least = min(point["least_power_w"] for point in found["points"])
                raise Infeasible(too_low(least, self.card))
            return EstimateResult(found, self.listings, None)
        least = _summary.least_power(estimates)
        if least is not None:
            raise Infeasible(too_low(least, self.card))
        step = None if self.step is None else _steps.step_of(self, estimates)
        found = _summary.single(self, estimates, step)
        kernels = _summary.kernel_entries(self.listings, estimates)
        if step is not None:
            kernels = _steps.kernels(step, self.listings, kernels)
        if self.detail:
            found["kernels"] = kernels
        return EstimateResult(found, self.listings, kernels, self.detail, step)


def prepare(
    model: str | ImportResult,
    gpu: str | GpuCard | None = None,
    *,
    workload: str | None = None,
    sm_clock: Sequence[float] | None = None,
    mem_clock: Sequence[float] | None = None,
    power_limit: Sequence[float] | None = None,
    temperature: int | float | None = None,
    changes: Mapping[str, float] | None = None,
    corrections: str | None = None,
    detail: bool = False,
    require_fit: bool = False,
    every: bool = False,
    plan: str | Mapping[str, Any] | Plan | None = None,
    tp: int | None = None,
    num_gpus: int | None = None,
    topology: str | None = None,
    global_batch: int | None = None,
    split: tuple[int, ...] | None = None,
    tokens: int | float | None = None,
    **request: Any,
) -> Task:
    """Checks a request and reads its files.

    `model`: bundled name, config or listing, a file that `imports.read` takes or what
    it gives; `every`: all workloads of a listing as one; `gpu`: name or file
    [h100-sxm];
    `workload`: one of several in a listing; clocks in Hz, limits in W, temperature in
    C: every combination is a point; `changes`: fields of the GPU, SI; `corrections`:
    file, "none", or the shipped ones; `detail`: kernels stand in the summary;
    `require_fit`: the GPU's memory has to suffice; `plan`, `tp`, `num_gpus`,
    `topology`: many GPUs (`read_plan`, `host_of`); `global_batch`: sequences of a
    training step on them; `split`: layers of each of its virtual stages; `tokens`: of
    a whole training run; `request`: batch, input_len, output_len, phase, dtype,
    kv_dtype, attention, stack, dispatch, accumulation, checkpointing, lora,
    frozen_layers, routing, speculative, accept, draft_tokens, images, image_tokens,
    steps, guidance, None where not asked for.

    Raises `ValueError` in one sentence for what cannot be, `Infeasible` for what has to
    fit the memory and does not.
    """
    given = _given(request)
    changes = changes or {}
    trains = given["phase"] == "train"
    shared = read_plan(plan, tp, num_gpus, trains)
    if global_batch is not None:
        _check_global_batch(global_batch, trains)
        shared = Plan() if shared is None else shared
    brought = brought_work(model, gpu)
    name = model if isinstance(model, str) else str(model.summary["source"])
    if gpu is None and brought is not None:
        gpu = brought.gpu
    named = DEFAULT_GPU if gpu is None else gpu
    plain = named if isinstance(named, GpuCard) else read_gpu(named)
    card = with_fields(plain, changes)
    assumed = {"gpu": plain.name} if gpu is None else {}
    host = None
    if shared is not None:
        host = host_of(card, topology)
        (host.check_training if trains else host.check)(shared)
        assumed |= {} if topology else {"topology": host.name}
        rate = card.values["link_bandwidth"]
        if "link_bandwidth" not in changes and host.rate not in (None, rate):
            card = with_fields(card, {"link_bandwidth": host.rate})
    elif topology is not None:
        raise ValueError(
            f"`topology` is '{topology}', but the request is of one GPU; give `plan`, "
            "`tp` or `num_gpus`, too."
        )
    points, taken = settings(card, sm_clock, mem_clock, power_limit, temperature)
    if detail and len(points) > 1:
        raise ValueError("`detail` is given with several settings; give one of each.")
    file = prior_file() if corrections == "none" else read_corrections(corrections)
    if brought is not None or name.lower().endswith(".jsonl"):
        if require_fit:
            raise ValueError(
                f"`require_fit` is given, but the listing '{name}' does not say what "
                "stays in memory; leave it out."
            )
        if shared is not None:
            raise ValueError(
                f"`plan` is given, but the listing '{name}' is of one GPU; leave it "
                "out."
            )
        read = brought.listings if brought else read_listings(name)
        chosen = [*read] if every else select_listing(read, workload)
        work = listed_work(name, chosen, given, card)
        if brought is not None:
            work.warnings[:0] = brought.notes
    else:
        sharing = Sharing(shared, host, global_batch, split)
        work = modelled_work(name, workload, given, card, require_fit, sharing)
    check_tokens(tokens, work.about, _summary.tokens_of(work.about))
    # nobody measured a changed GPU, servers of many were compared, not fitted
    train = work.about["phase"] in ("train", "backward", "optimizer")
    several = shared is not None and shared.gpus > 1
    new = bool(changes) or _is_changed(card) or (several and not train)
    about = {
        "model": work.about["model"],
        "gpu": card.name,
        **_sizes(shared, host, trains),
        **{x: work.about[x] for x in (*REQUEST, *ANSWERED) if x in work.about},
        "assumed": assumed | work.assumed | taken,
    }
    listings = [complete(listing) for listing in work.listings]
    warnings = [*work.warnings, *lacking(listings, card), *unusual(points, card)]
    inside = {kernel["op"] for listing in listings for kernel in listing.kernels}
    if train:  # steps of decoders were fitted whole, of mixtures by too few programs
        known = work.decodes and "moe" not in inside
        trust = file.trust(card, "plan", new or not known)
    else:
        beyond = _beyond(file, card, points, work.about)
        trust = file.trust(card, new=new, holds=sorted(inside), beyond=beyond)
    return Task(
        card, file, points, listings, about, trust, warnings, work.memory, detail,
        shared, work.stages, work.step, tokens,
    )  # fmt: skip


def _sizes(plan: Plan | None, host: Host | None, training: bool) -> dict[str, Any]:
    """The plan in an answer."""
    if plan is None or host is None:
        return {}
    said = plan.to_json(training)
    return {"plan": said, "num_gpus": plan.gpus, "topology": host.name}


def _check_global_batch(number: Any, trains: bool):
    if not trains:
        raise ValueError(
            f"`global_batch` is {number}, but only `--phase train` has one; give "
            "`batch`."
        )
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(
            f"`global_batch` is {number!r}; allowed is a whole number of at least 1."
        )


def _beyond(
    file: CorrectionsFile,
    card: GpuCard,
    points: Sequence[Setting],
    about: Mapping[str, Any],
) -> list[str]:
    """In what a request lies beyond the rows that were fitted of the GPU: clocks below
    theirs, eager attention over more tokens."""
    lowest, longest = (
        file.fitted_on.get(name, {}).get(card.served_as)
        for name in ("sm_clock_min", "seq_len_max")
    )
    slow = lowest and min(x.sm_clock for x in points) < NEAR * lowest
    long = longest and about["attention"] == "eager" and (about["input_len"] or 0)
    return ["clock"] * bool(slow) + ["length"] * bool(long and long > longest)


def _given(request: Mapping[str, Any]) -> dict[str, Any]:
    """Every choice of a request, None where there is none."""
    known = (*REQUEST, *OTHERS)
    for name in request:
        if name not in known:
            raise ValueError(
                f"`{name}` is no argument of an estimate; allowed are "
                f"{', '.join(known)}."
            )
    given = dict.fromkeys(known) | dict(request)
    switches = ("checkpointing", "guidance")
    return given | {name: given[name] or None for name in switches}


def _is_changed(card: GpuCard) -> bool:
    """Whether a GPU with the corrections of a bundled one has other numbers: nobody
    measured it."""
    if card.corrections is None:
        return False
    return card.values != read_gpu(card.corrections).values


def too_low(least: float, card: GpuCard) -> str:
    """That a power limit is below the `least` power (W) at the lowest clock."""
    limit = math.ceil(least / card.values["cap_fraction"])
    lowest = card.values["sm_clock_min"] / 1e6
    return (
        f"`power_limit` cannot be kept: at its lowest clock ({lowest:g} MHz) the GPU "
        f"draws {least:.1f} W here; the least limit that can is {limit} W."
    )


def _estimates(workload: Any, gpu: GpuSpec, points: Sequence[Setting]) -> Estimate:
    """Estimate on the host; several settings are one call, on a leading axis."""
    if len(points) == 1:
        point = jax.tree.map(lambda x: x[0], operating_points(points))
        return jax.device_get(kept(estimate_once, (workload, gpu, point)))
    more = pad_size(len(points)) - len(points)  # one compilation for many
    many = operating_points([*points, *[points[-1]] * more])
    return jax.device_get(kept(_at_each, (workload, gpu, many)))


def _at_each(workload: Any, gpu: GpuSpec, points: OperatingPoint) -> Estimate:
    return jax.vmap(lambda point: estimate_once(workload, gpu, point))(points)
