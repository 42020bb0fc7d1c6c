"""`diffenergy gpus`: the GPUs that are known, and all about one of them."""

from ...corrections import read_corrections
from ...hardware import gpu_entry, gpu_names, gpu_summary, gpu_toml, read_gpu
from ...report import gpu_blocks, gpu_list_blocks
from ..arguments import check_action
from ..run import Outcome, listing
from .gpus_flags import Flags


def run(flags: Flags) -> Outcome:
    """Lists the GPUs, or shows one."""
    check_action("gpus", flags.action, flags.name)
    if flags.toml and (flags.name is None or flags.as_json):
        why = "--json is given too" if flags.name else "`show NAME` is missing"
        raise ValueError(f"`--toml` prints one GPU file, but {why}; correct that.")
    file = read_corrections()
    if flags.name is None:
        entries = [gpu_entry(read_gpu(name), file) for name in gpu_names()]
        return listing(f"{len(entries)} GPUs", entries, gpu_list_blocks(entries))
    card = read_gpu(flags.name)
    summary = gpu_summary(card, file)
    blocks = gpu_blocks(summary)
    return listing(
        str(blocks[0]),
        summary,
        blocks,
        texts={".toml": lambda: gpu_toml(card)},
        text=gpu_toml(card).removesuffix("\n") if flags.toml else "",
    )
