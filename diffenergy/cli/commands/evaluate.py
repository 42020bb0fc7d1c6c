"""`diffenergy evaluate`: predictions against measured runs."""

from ... import imports, measurements, service
from ...estimator import start_jax
from ...fitting import evaluate
from ...requests import BadRequest, explicit_fields, part
from ..progress import megabytes
from ..run import Outcome, outcome
from .evaluate_flags import Flags


def run(flags: Flags) -> Outcome:
    """Reads the files and compares every row, or every window of a service."""
    names = set(explicit_fields(flags))
    if flags.service:
        return _service(flags, names)
    logs = [x for x in flags.measurements if service.service_format(x)]
    if logs:
        raise ValueError(f"{logs[0]} is a log of a service; add `--service`.")
    for name in sorted(names & {*part(service.ServedRequest, flags)} - {"gpu"}):
        raise BadRequest(
            f"`{name}` is given without `service`; give both.", name, "service"
        )
    start_jax(keep_compilations=True)
    traces = [path for path in flags.measurements if imports.is_listing(path)]
    if traces:
        return _trace(flags, traces)
    for file in flags.measurements:
        imports.refuse_file(file, "listing")
    table = measurements.read(
        flags.measurements, **part(measurements.TableRequest, flags)
    )
    result = evaluate(table, flags.corrections, flags.by)
    rows = {".csv": lambda: result.rows().to_csv(index=False)}
    return outcome(result, texts=rows)


def _service(flags: Flags, names: set[str]) -> Outcome:
    """Compares the windows of a service."""
    for name in ("workloads", "op", "meter", "by"):
        if name in names:
            raise BadRequest(
                f"`{name}` is given beside `service`, whose logs have no such rows; "
                "leave it out.",
                name,
                "service",
            )
    start_jax(keep_compilations=True)
    request = part(service.ServiceRequest, flags, logs=flags.measurements)
    result = service.evaluate(**request)
    outside, notes = result.warning, result.notes
    if outside and not flags.strict:
        outside, notes = "", [*notes, outside]
    return outcome(result, texts={".csv": result.to_csv}, notes=notes, outside=outside)


def _trace(flags: Flags, traces: list[str]) -> Outcome:
    """Compares the kernels of a trace."""
    if len(flags.measurements) > 1:
        raise ValueError(
            f"{traces[0]} is a trace beside other files; evaluate it alone."
        )
    for name in ("workloads", "op"):
        if getattr(flags, name):
            raise ValueError(
                f"`{name}` is given, but {traces[0]} is a trace, which has no such "
                "column; leave it out."
            )
    with megabytes("reading") as show:
        result = measurements.evaluate_trace(
            traces[0], flags.gpu, corrections=flags.corrections,
            by=flags.by, progress=show,
        )  # fmt: skip
    notes = () if flags.as_json else result.notes
    return outcome(result, texts={".csv": result.to_csv}, notes=notes)
