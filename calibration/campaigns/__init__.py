"""How public campaigns read time and power: `meter`, a `Meter` for `fit`, `evaluate`
and `measurements.read`.

Its numbers stand in `instruments.toml`, its equations in `formulas`; which runs began
on an idle board is read from the tables themselves (`blocks`).
"""

from .instruments import instruments, model_of
from .reading import meter

__all__ = ["instruments", "meter", "model_of"]
