"""`diffenergy collective`: schedules of collectives on many GPUs, and their proof."""

from ...collectives import (
    CollectiveResult,
    LinksRequest,
    Search,
    SizesResult,
    plan,
    verify,
)
from ...estimator import start_jax
from ...requests import explicit_fields, part
from ..flags import flag_names
from ..interruption import keeping
from ..progress import stages
from ..run import Outcome, outcome
from .collective_flags import Flags


def run(flags: Flags) -> Outcome:
    """Plans a schedule, or verifies one in a file."""
    if flags.verifies:
        return _verify(flags)
    if flags.file is not None:
        raise ValueError(
            f"'{flags.file}' stands behind the topology; files are checked by "
            "`diffenergy collective verify FILE`."
        )
    if flags.machine is not None:
        raise ValueError(
            f"`--topology` is '{flags.machine}', which only verify takes; the machine "
            f"here is '{flags.topology}'."
        )
    sizes = _sizes(flags)
    start_jax(keep_compilations=True)
    result = _plan(flags, sizes)
    last = result.results[-1] if isinstance(result, SizesResult) else result
    cut = "interrupted; the best so far is shown." if last.interrupted else ""
    return outcome(
        result,
        content=_content(result, flags.no_sends),
        texts={".csv": last.to_csv, ".xml": last.to_xml},
        interrupted=cut,
    )


def _sizes(flags: Flags) -> list[str] | str | None:
    """Sizes as typed, each once; a list where there is a comma."""
    ending = (flags.out or "").lower().rpartition(".")[2]
    if ending == "xml" and (flags.matrix or flags.demand or flags.groups):
        raise ValueError(
            f"`--out` is '{flags.out}', but MSCCL has plain collectives alone; write "
            ".json or .csv."
        )
    if flags.size is None or "," not in flags.size:
        return flags.size
    sizes = list(dict.fromkeys(part.strip() for part in flags.size.split(",")))
    if ending in ("csv", "xml") and len(sizes) > 1:
        raise ValueError(
            f"`--out` takes one schedule in such a file, and there are {len(sizes)} "
            "sizes; give one --size, or write .json."
        )
    return sizes


def _plan(
    flags: Flags, sizes: list[str] | str | None
) -> CollectiveResult | SizesResult:
    """Plans the schedule of the flags; interrupted, keeps the best so far."""
    request = part(LinksRequest, flags)
    request |= {"search": Search(**part(Search, flags))}
    with keeping(), stages() as watch:
        return plan(flags.topology, flags.collective, sizes, **request, watch=watch)


def _content(result: CollectiveResult | SizesResult, no_sends: bool):
    """The JSON, with the sends or without."""
    if not no_sends:
        return result.summary
    if isinstance(result, SizesResult):
        return [_content(one, no_sends) for one in result.results]
    return {key: value for key, value in result.summary.items() if key != "sends"}


def _verify(flags: Flags) -> Outcome:
    """Replays the schedule in a file."""
    if flags.file is None:
        raise ValueError(
            "`collective verify` lacks a file; give JSON of `collective --json` or a "
            "published TE-CCL file."
        )
    allowed = {"file", "topology", "machine", "plot", "as_json", "out"}
    if flags.machine is not None:
        allowed |= {"latency", "gpu"}
    for name in explicit_fields(flags):
        if name not in allowed:
            raise ValueError(
                f"`{flag_names(Flags)[name]}` is no option of verify (--latency and "
                "--gpu go with --topology); leave it out."
            )
    checked = verify(
        flags.file,
        flags.machine,
        latency=flags.latency,
        gpu=None if flags.gpu is None else str(flags.gpu),
    )
    return outcome(checked)
