"""Writes the table of language models in docs/reference/models.md.

python docs/models.py
"""

from pathlib import Path
from typing import Final

from diffenergy.workload import TrainedModel
from diffenergy.workload.models import Model, load_model, model_names

PAGE: Final = Path(__file__).parent / "reference" / "models.md"
BEGIN, END = "<!-- models -->\n", "<!-- end of models -->\n"
HEADING: Final = (
    "| model | parameters | stored in | weights (GB) | KV (B/token) | of it in windows "
    "| state (MB/request) | trains |\n|---|---:|---|---:|---:|---:|---:|---|\n"
)


def table() -> str:
    """The table of all bundled models that keep a cache, in Markdown."""
    models = (load_model(name) for name in model_names())
    return HEADING + "".join(row(x) for x in models if x.kv_bytes_per_token("bf16"))


def row(model: Model) -> str:
    """One model; the cache is in bf16."""
    dtype = model.defaults()["dtype"]
    windowed = model.kv_bytes_per_token("bf16", windowed=True)
    cells = (
        model.name,
        f"{model.parameters():,}",
        dtype,
        f"{model.weight_bytes(dtype) / 1e9:,.2f}",
        f"{model.kv_bytes_per_token('bf16') + windowed:,.0f}",
        f"{windowed:,.0f}",
        f"{model.state_bytes() / 1e6:,.2f}",
        "yes" if isinstance(model, TrainedModel) and model.trains else "",
    )
    return f"| {' | '.join(cells)} |\n"


def written(page: str) -> str:
    """The page with the table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    print(f"{PAGE.name}: {table().count(chr(10)) - 2} models")
