"""Sliders in a notebook whose picture follows them."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..estimator import DEFAULT_GPU, prepare
from ..hardware import GpuCard
from ..workload.models import load_model
from ._numbers import Numbers, Values
from ._picture import picture

_MISSING: Final = (
    "sliders need ipywidgets; install it, as by `pip install diffenergy[explore]`."
)
_LABELS: Final = {
    "sm_clock": ("SM clock", "MHz", 1e6),
    "power_limit": ("power limit", "W", 1.0),
    "batch": ("batch", "", 1.0),
    "input_len": ("tokens in", "", 1.0),
    "output_len": ("tokens out", "", 1.0),
    "num_sms": ("SMs", "", 1.0),
    "l2_capacity": ("L2 capacity", "MB", 1e6),
    "dram_bandwidth": ("DRAM bandwidth", "TB/s", 1e12),
}
"""Words, unit and its size in SI, in the order of the sliders."""
_BATCHES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_SHORTEST: Final = {"input_len": 16, "output_len": 8}
"""Tokens; from there on the kernels of all lengths have one structure."""
_LONGEST: Final = {"input_len": 8192, "output_len": 2048}


class Explorer:
    """Sliders and picture of one request; shows itself where a notebook displays it, to
    readers without a kernel the picture alone.

    `values`: what the sliders say, `shown`: what is seen there, `sliders`: the widgets
    by the names in `Values`.
    """

    def __init__(self, numbers: Numbers, start: Values):
        widgets = _ipywidgets()
        self._numbers, self.values = numbers, start
        self._begin = self.shown = numbers.at(start)
        self.sliders = {
            name: _slider(widgets, name, values, getattr(start, name))
            for name, values in positions(numbers, start).items()
        }
        for slider in self.sliders.values():
            slider.observe(self._moved, "value")
        self._picture = widgets.HTML(self.picture())
        self._note = widgets.HTML()
        half = (len(self.sliders) + 1) // 2
        sliders = list(self.sliders.values())
        columns = widgets.HBox(
            [widgets.VBox(sliders[:half]), widgets.VBox(sliders[half:])]
        )
        self._box = widgets.VBox([columns, self._note, self._picture])

    def picture(self) -> str:
        """The picture as it stands, an SVG; it can be kept without the sliders."""
        begun = self.shown is self._begin
        return picture(self.shown, None if begun else self._begin)

    def _moved(self, change: Any) -> None:
        """Follows a slider; where the model refuses, says why and stays."""
        moved = {name: slider.value for name, slider in self.sliders.items()}
        values = self.values._replace(**moved)
        try:
            self.shown = self._numbers.at(values)
        except ValueError as error:
            self._note.value = str(error)
            return
        self.values, self._note.value = values, ""
        self._picture.value = self.picture()

    def _repr_mimebundle_(self, **more: Any) -> Any:
        drawn = self._box._repr_mimebundle_(**more)
        bundle = dict(drawn[0] if isinstance(drawn, tuple) else drawn)
        text = "Sliders for a GPU and a request; they need a running kernel."
        return bundle | {"text/plain": text, "image/svg+xml": self.picture()}


def explore(model: str, gpu: str | GpuCard = DEFAULT_GPU, **request: Any) -> Explorer:
    """Sliders for a GPU and a request; time, energy per token, energy by unit and the
    curves over SM clocks follow them. For notebooks.

    What is grey in the picture is where the sliders began. Clocks, limit, batch,
    lengths and the numbers of the GPU are data of one compiled program: no move
    compiles. A GPU with other SMs, L2 or bandwidth keeps all its other numbers.

    Args:
        model: bundled name, a Hugging Face `config.json` or its folder.
        gpu: name or file of the GPU [h100-sxm].
        **request: where the sliders begin: `batch` [1], `input_len` [512] and
            `output_len` [128] in tokens, `sm_clock` (Hz) and `power_limit` (W); and
            what stays: `phase`, `dtype`, `kv_dtype`, `attention`, `stack`, `dispatch`,
            `corrections`.

    Returns:
        An object that a notebook shows; `.picture()` is its SVG, `.values` and
        `.shown` are the numbers behind it.

    Raises:
        ValueError: ipywidgets is not there (extra `explore`), or the request cannot be
            had; in one sentence.

    Example:

        >>> import diffenergy as de
        >>> de.explore("llama-3.1-8b", "h100-sxm", batch=8)  # doctest: +SKIP
    """
    _ipywidgets()
    for name in ("sm_clock", "power_limit"):
        if request.get(name) is not None:
            request[name] = (float(request[name]),)
    task = prepare(model, gpu, **request)
    fixed = {
        name: x
        for name, x in request.items()
        if name not in (*_LABELS, "corrections") and x is not None
    }
    numbers = Numbers(load_model(model), task.card, task.gpu, **fixed)
    setting, about = task.settings[0], task.about
    output = about["output_len"] if about["phase"] == "generate" else None
    start = Values(
        setting.sm_clock,
        setting.power_limit,
        about["batch"],
        about["input_len"],
        output,
        *(task.card.values[x] for x in ("num_sms", "l2_capacity", "dram_bandwidth")),
    )
    return Explorer(numbers, start)


def positions(numbers: Numbers, start: Values) -> dict[str, list[int | float]]:
    """Where each slider can stand, rising, SI units; where it began among them."""
    card, model = numbers.card.values, numbers.model
    limits = np.linspace(card["power_limit_min"], card["power_limit_max"], 33)
    values: dict[str, Sequence[int | float]] = {
        "sm_clock": numbers.steps.tolist(),
        "power_limit": limits.round().tolist(),
        "batch": _BATCHES,
        "num_sms": (card["num_sms"] * np.linspace(0.25, 2.0, 29)).round().tolist(),
        "l2_capacity": (card["l2_capacity"] * _factors()).tolist(),
        "dram_bandwidth": (card["dram_bandwidth"] * _factors()).tolist(),
    }
    for name in _SHORTEST:
        if getattr(start, name) is not None:
            longest = min(_LONGEST[name], model.max_positions or _LONGEST[name])
            values[name] = _lengths(_SHORTEST[name], longest)
    return {
        name: sorted({*values[name], getattr(start, name)})
        for name in _LABELS
        if name in values
    }


def _factors() -> np.ndarray:
    """A quarter to four times, in steps of a fourth root of two."""
    return 2.0 ** np.linspace(-2.0, 2.0, 17)


def _lengths(shortest: int, longest: int) -> list[int]:
    """Powers of two and what lies half way between them."""
    powers = [shortest << i for i in range(longest.bit_length())]
    return [x for p in powers for x in (p, p * 3 // 2) if x <= longest]


def _slider(
    widgets: Any, name: str, values: Sequence[int | float], start: int | float
) -> Any:
    """A slider over `values`, each with its unit."""
    words, unit, size = _LABELS[name]
    options = [(f"{value / size:.4g} {unit}".strip(), value) for value in values]
    return widgets.SelectionSlider(
        options=options,
        value=start,
        description=words,
        style={"description_width": "9em"},
        layout={"width": "26em"},
    )


def _ipywidgets() -> Any:
    """The library of sliders. Raises `ValueError` if it is not there."""
    try:
        import ipywidgets  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(_MISSING) from None
    return ipywidgets
