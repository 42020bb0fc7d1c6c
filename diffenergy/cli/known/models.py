"""`diffenergy models`: the models that are bundled, and all about one of them."""

from ... import imports
from ...report import model_list_parts, model_parts
from ...workload.models import load_model, model_names, model_types
from ..parsing.shared import check_action
from ..run import Outcome
from .models_flags import Flags


def run(flags: Flags) -> Outcome:
    """The list, or one model."""
    check_action("models", flags.action, flags.name)
    if flags.name is None:
        entries = [load_model(name).entry() for name in model_names()]
        return Outcome(
            content=entries, parts=lambda: model_list_parts(entries, model_types())
        )
    imports.refuse_file(flags.name, "program", "measurements")
    summary = load_model(flags.name).summary()
    return Outcome(content=summary, parts=lambda: model_parts(summary))
