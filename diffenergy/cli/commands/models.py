"""`diffenergy models`: the models that are bundled, and all about one of them."""

from ... import imports
from ...report import model_blocks, model_list_blocks
from ...workload.models import load_model, model_names, model_types
from ..arguments import check_action
from ..run import Outcome, listing
from .models_flags import Flags


def run(flags: Flags) -> Outcome:
    """Lists the models, or shows one."""
    check_action("models", flags.action, flags.name)
    if flags.name is None:
        entries = [load_model(name).entry() for name in model_names()]
        blocks = model_list_blocks(entries, model_types())
        return listing(f"{len(entries)} models", entries, blocks)
    imports.refuse_file(flags.name, "program", "measurements")
    summary = load_model(flags.name).summary()
    blocks = model_blocks(summary)
    return listing(str(blocks[0]), summary, blocks)
