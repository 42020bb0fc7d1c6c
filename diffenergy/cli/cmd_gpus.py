"""`diffenergy gpus`: the GPUs that are known, and all about one of them."""

from typing import Annotated

import typer

from . import completing, output


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("gpus")(_gpus)


def _gpus(
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="show",
            help="Tell all about one GPU.",
            autocompletion=completing.show,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name, another spelling or .toml file.",
            autocompletion=completing.gpus,
        ),
    ] = None,
    toml: Annotated[
        bool, typer.Option("--toml", help="Print a GPU file to start from.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Also write .json or .toml."),
    ] = None,
):
    """GPUs that are known; of one every value, its unit and source, and whose
    corrections serve it.

    \b
    Examples:
      diffenergy gpus
      diffenergy gpus show h100-sxm --toml > mine.toml
    """
    output.check_action("gpus", action, name)
    if toml and (name is None or as_json):
        why = "--json is given too" if name else "`show NAME` is missing"
        raise ValueError(f"`--toml` prints one GPU file, but {why}; correct that.")
    if name is None:
        _list(as_json, out)
    else:
        _show(name, toml, as_json, out)


def _list(as_json: bool, out: str | None):
    writers = {".json": lambda: output.json_text(entries)}
    output.writer(out, writers)
    from ..corrections import read_corrections
    from ..hardware import gpu_names, read_gpu
    from ..report._tables.known import gpu_entry, gpu_list_parts

    file = read_corrections()
    cards = [read_gpu(name) for name in gpu_names()]
    entries = [gpu_entry(card, file.grade(card)) for card in cards]
    output.save(out, writers)
    output.show(entries, as_json, lambda: gpu_list_parts(entries))


def _show(name: str, toml: bool, as_json: bool, out: str | None):
    writers = {
        ".json": lambda: output.json_text(summary),
        ".toml": lambda: gpu_toml(card),
    }
    output.writer(out, writers)
    from ..corrections import read_corrections
    from ..hardware import gpu_toml, read_gpu
    from ..hardware._files import field_units
    from ..report._tables.known import gpu_parts, gpu_summary

    card, file = read_gpu(name), read_corrections()
    summary = gpu_summary(card, field_units(), file)
    output.save(out, writers, inputs=[name])
    if toml:
        print(gpu_toml(card), end="")
        return
    output.show(summary, as_json, lambda: gpu_parts(summary))
