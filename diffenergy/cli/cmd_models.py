"""`diffenergy models`: the models that are bundled, and all about one model."""

from pathlib import Path
from typing import Annotated

import typer

from . import completing, output


def add_to(app: typer.Typer):
    """Adds the command."""
    app.command("models")(_models)


def _models(
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="show",
            help="Tell all about one model.",
            autocompletion=completing.show,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Bundled name, config.json or folder.",
            autocompletion=completing.models,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone.")] = False,
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Also write .json.")
    ] = None,
):
    """Models that are bundled; of one its layers, parameters, bytes by dtype and
    KV-cache bytes per token.

    \b
    Examples:
      diffenergy models
      diffenergy models show llama-3.1-8b
    """
    output.check_action("models", action, name)
    writers = {".json": lambda: output.json_text(content)}
    output.writer(out, writers)
    from ..report._tables import known
    from ..workload.models import load_model, model_names

    if name is None:
        content = [known.model_entry(load_model(name)) for name in model_names()]
        output.save(out, writers)
        output.show(content, as_json, lambda: known.model_list_parts(content))
    else:
        content = known.model_summary(load_model(name))
        output.save(out, writers, inputs=[name, Path(name) / "config.json"])
        output.show(content, as_json, lambda: known.model_parts(content))
