"""`diffenergy estimate`: time, power and energy of a model or a kernel listing."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from . import output
from .estimation import Result, prepare
from .flags import Flags


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("estimate")(_estimate)


def _option(name: str, metavar: str, text: str) -> Any:
    return typer.Option(name, metavar=metavar, help=text)


def _estimate(
    model: Annotated[
        str,
        typer.Argument(
            help="Bundled name, Hugging Face config.json or its folder, or a .jsonl "
            "kernel listing.",
        ),
    ],
    gpu: Annotated[
        str | None, _option("--gpu", "NAME", "GPU name or .toml file [h100-sxm].")
    ] = None,
    workload: Annotated[
        str | None, _option("--workload", "NAME", "One workload of a listing file.")
    ] = None,
    batch: Annotated[
        str | None, _option("--batch", "N", "Sequences or images [1].")
    ] = None,
    input_len: Annotated[
        str | None, _option("--input-len", "N", "Tokens in, per sequence [512].")
    ] = None,
    output_len: Annotated[
        str | None, _option("--output-len", "N", "Tokens out, per sequence [128].")
    ] = None,
    phase: Annotated[
        str | None,
        _option(
            "--phase",
            "PHASE",
            "prefill, decode (one step at KV length --input-len), generate or forward "
            "[generate; encoders and vision: forward].",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        _option("--dtype", "TYPE", "fp32, tf32, bf16, fp16, fp8 or fp8_block [bf16]."),
    ] = None,
    kv_dtype: Annotated[
        str | None, _option("--kv-dtype", "TYPE", "Type of the KV cache [as --dtype].")
    ] = None,
    attention: Annotated[
        str | None, _option("--attention", "KIND", "flash or eager [flash].")
    ] = None,
    stack: Annotated[
        str | None,
        _option(
            "--stack",
            "KIND",
            "serving (fused kernels) or eager (Hugging Face modules; implies "
            "--attention eager) [serving].",
        ),
    ] = None,
    dispatch: Annotated[
        str | None,
        _option("--dispatch", "KIND", "eager or graph [graph in serving decode]."),
    ] = None,
    sm_clock: Annotated[
        str | None,
        _option("--sm-clock", "MHZ[,MHZ...]", "SM clock, or a list [the highest]."),
    ] = None,
    mem_clock: Annotated[
        str | None,
        _option("--mem-clock", "MHZ[,MHZ...]", "Memory clock, or a list."),
    ] = None,
    power_limit: Annotated[
        str | None,
        _option("--power-limit", "W[,W...]", "Power limit, or a list [TDP]."),
    ] = None,
    temperature: Annotated[
        str | None,
        _option("--temperature", "C", "Temperature [follows from the power]."),
    ] = None,
    set_field: Annotated[
        list[str] | None,
        _option(
            "--set", "FIELD=VALUE", "Change a field of the GPU, in SI; repeatable."
        ),
    ] = None,
    corrections: Annotated[
        str | None,
        _option("--corrections", "FILE|none", "Fitted constants [the shipped ones]."),
    ] = None,
    detail: Annotated[
        bool, typer.Option("--detail", help="Show every kernel.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
    out: Annotated[
        str | None,
        _option("--out", "FILE", "Also write .json, .jsonl (the listing) or .csv."),
    ] = None,
):
    """Time, power and energy of MODEL on one GPU.

    Lists of clocks or power limits give a table with the best row for energy and for
    energy-delay product.

    \b
    Examples:
      diffenergy estimate llama-3.1-8b --gpu h200-sxm --batch 8 --input-len 1024
      diffenergy estimate gpt2 --gpu a100-sxm-80gb --sm-clock 900,1410 --json
    """
    given = dict(locals())
    given["set_field"] = tuple(set_field or ())
    run(Flags(**given))


def run(flags: Flags):
    """Evaluates, prints and writes what the flags ask for."""
    output.writer(flags.out, _writers(None))
    result = prepare(flags).run()
    output.save(flags.out, _writers(result), inputs=flags.inputs)

    def tables():
        from ..report.estimates import estimate_parts

        return estimate_parts(result.summary, result.kernels, flags.detail)

    output.show(result.summary, flags.as_json, tables)
    output.notes(result.notes)


def _writers(result: Result | None) -> output.Writers:
    """Texts by ending; `result` None only lists the endings."""

    def done() -> Result:
        assert result is not None
        return result

    def lines() -> str:
        from ..workload.listing import listing_lines

        return listing_lines(done().listings)

    def rows() -> str:
        found = done()
        return _csv(found.kernels or found.summary["points"])

    return {
        ".json": lambda: output.json_text(done().summary),
        ".jsonl": lines,
        ".csv": rows,
    }


def _csv(entries: Sequence[Mapping[str, Any]]) -> str:
    """Entries as CSV: nested figures become columns `key_unit`, None an empty cell."""
    flat = [_flat(entry) for entry in entries]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(entry: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}_")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
