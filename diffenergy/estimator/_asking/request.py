"""From what is asked of an estimate by name to a checked task."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...corrections import NEAR, CorrectionsFile, Trust, prior_file, read_corrections
from ...hardware import GpuCard, read_gpu, with_fields
from ...imports import ImportResult
from ...kernels import known_as
from ...nodes import site_of
from ...plans import Host, Plan, host_of, read_plan
from ...power_time import POWER, goodput_of, read_events
from ...requests import accepts, check_type, part, values_of
from ...workload import (
    Listing,
    ModelRequest,
    read_listings,
    select_listing,
)
from .._answer.figures import tokens_of
from .._answer.whole_run import check_tokens
from .._effects import QUANTITIES
from .estimate_request import EstimateRequest
from .modelled import Sharing, modelled_work
from .settings import Setting, settings, unusual
from .task import Task
from .warnings import WITHOUT_FAILURES, check_kernels, missing_units, of_hardware
from .work import ANSWERED, REQUEST, Work, brought_work, listed_work

DEFAULT_GPU: Final = "h100-sxm"


@accepts(EstimateRequest, "estimate")
def prepare(request: EstimateRequest) -> Task:
    """Checks a request and reads its files.

    `model` may be what `imports.read` gives, `gpu` what `read_gpu` gives. Raises
    `ValueError` in one sentence for what cannot be, `Infeasible` for what has to fit
    the memory and does not.
    """
    model, gpu = request.model, request.gpu
    check_type("model", model, str | ImportResult)
    choices = part(ModelRequest, request)
    choices |= {name: choices[name] or None for name in ("checkpointing", "guidance")}
    trains = request.phase == "train"
    plan = _plan(request, trains)
    brought = brought_work(model, gpu)
    if gpu is None and brought is not None:
        gpu = brought.gpu
    named = DEFAULT_GPU if gpu is None else gpu
    plain = named if isinstance(named, GpuCard) else read_gpu(named)
    card, host = _connected(plain, plan, request, trains)
    assumed: dict[str, Any] = {}
    if gpu is None or plain.is_assumed:
        assumed["gpu"] = plain.name
    assumed |= {"topology": host.name} if host and not request.topology else {}
    points, defaults = settings(
        card,
        values_of(request.sm_clock),
        values_of(request.mem_clock),
        values_of(request.power_limit),
        request.temperature,
    )
    for name in ("detail", "sensitivity", *POWER):
        if getattr(request, name) and len(points) > 1:
            raise ValueError(
                f"`{name}` is given with several settings; give one of each."
            )
    none = request.corrections == "none"
    file = prior_file() if none else read_corrections(request.corrections)
    if brought is not None or str(model).lower().endswith(".jsonl"):
        work = _listed(model, brought, request, plan, choices, card)
    else:
        sharing = Sharing(plan, host, request.global_batch, request.split)
        one, fit = request.workload, request.require_fit
        work = modelled_work(str(model), one, choices, card, fit, sharing)
    check_tokens(request.tokens, work.about, tokens_of(work.about))
    sizes: dict[str, Any] = {}
    if plan is not None and host is not None:
        sizes = {"plan": plan.to_json(trains), "num_gpus": plan.gpus}
        sizes["topology"] = host.name
    site, site_defaults = site_of(request, card)
    goodput = goodput_of(
        1 if plan is None else plan.gpus, request.goodput, request.mtbf,
        request.restart or 0.0, request.checkpoint_time or 0.0,
        request.checkpoint_every,
    )  # fmt: skip
    if goodput and goodput.mtbf and not request.checkpoint_every:
        assumed["checkpoint_every"] = f"{goodput.every:.4g} s"
    if request.tokens and goodput is None:
        assumed["goodput"] = 1.0
    about = {
        "model": work.about["model"],
        "gpu": card.name,
        **sizes,
        **{x: work.about[x] for x in (*REQUEST, *ANSWERED) if x in work.about},
        "assumed": assumed | work.assumed | defaults | site_defaults,
    }
    laws = [x for x in file.forecasts(card) if plan or x.constant != "energy_link"]
    if laws:
        about["forecast"] = [law._asdict() for law in laws]
    listings = [*work.listings]
    check_kernels(listings, card)
    warnings = [*work.warnings, *missing_units(listings, card), *unusual(points, card)]
    warnings += of_hardware(file, card, plan is not None)
    if "goodput" in assumed:
        warnings.append(WITHOUT_FAILURES)
    trust = _trust(file, card, points, work, listings, request, plan)
    return Task(
        card, file, points, listings, about, trust, warnings, work.memory,
        request.detail, plan, work.stages, work.step, request.tokens, site,
        request.power_step, request.smooth,
        None if request.events is None else read_events(request.events),
        goodput, QUANTITIES if request.sensitivity else (),
    )  # fmt: skip


def _plan(request: EstimateRequest, trains: bool) -> Plan | None:
    """The plan asked for; that of one GPU where a step's sequences are."""
    plan = read_plan(request.plan, request.tp, request.num_gpus, trains)
    number = request.global_batch
    if number is None:
        return plan
    if not trains:
        raise ValueError(
            f"`global_batch` is {number}, but only `--phase train` has one; give "
            "`batch`."
        )
    return plan or Plan()


def _connected(
    plain: GpuCard, plan: Plan | None, request: EstimateRequest, trains: bool
) -> tuple[GpuCard, Host | None]:
    """The GPU with the changes asked for, and with its links as in the host of a
    plan."""
    changes = request.changes or {}
    card = with_fields(plain, changes)
    if plan is None:
        if request.topology is None:
            return card, None
        raise ValueError(
            f"`topology` is '{request.topology}', but the request is of one GPU; give "
            "`plan`, `tp` or `num_gpus`, too."
        )
    host = host_of(card, request.topology)
    (host.check_training if trains else host.check)(plan)
    rate = card.values["link_bandwidth"]
    if "link_bandwidth" not in changes and host.rate not in (None, rate):
        card = with_fields(card, {"link_bandwidth": host.rate})
    return card, host


def _listed(
    model: str | ImportResult,
    brought: ImportResult | None,
    request: EstimateRequest,
    plan: Plan | None,
    choices: dict[str, Any],
    card: GpuCard,
) -> Work:
    """Work of a listing, or of what was `brought` in another form."""
    name = model if isinstance(model, str) else str(model.summary["source"])
    if request.require_fit:
        raise ValueError(
            f"`require_fit` is given, but the listing '{name}' does not say what "
            "stays in memory; leave it out."
        )
    if plan is not None:
        raise ValueError(
            f"`plan` is given, but the listing '{name}' is of one GPU; leave it out."
        )
    read = brought.listings if brought else read_listings(name)
    chosen = [*read] if request.every else select_listing(read, request.workload)
    work = listed_work(name, chosen, choices, card)
    if brought is not None:
        work.warnings[:0] = brought.notes
    return work


def _trust(
    file: CorrectionsFile,
    card: GpuCard,
    points: Sequence[Setting],
    work: Work,
    listings: Sequence[Listing],
    request: EstimateRequest,
    plan: Plan | None,
) -> Trust:
    """How far the constants of `file` reach a request: nobody measured a changed GPU,
    servers of many were compared, not fitted."""
    train = work.about["phase"] in ("train", "backward", "optimizer")
    several = plan is not None and plan.gpus > 1 and not train
    like = card.corrections  # the bundled GPU that it should be, number by number
    changed = like is not None and not card.alike(read_gpu(like))
    new = bool(request.changes) or changed or several
    inside = {known_as(x["op"]) for listing in listings for x in listing.kernels}
    if train:  # steps of decoders were fitted whole, of mixtures by too few programs
        fitted = work.decodes and "moe" not in inside
        return file.trust(card, "plan", new or not fitted)
    beyond = _beyond(file, card, points, work.about)
    return file.trust(card, new=new, holds=sorted(inside), beyond=beyond)


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
