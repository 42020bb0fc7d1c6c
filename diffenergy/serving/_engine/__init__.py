"""Engines: what a step takes beside its kernels."""

from .engine import ENGINES as ENGINES
from .engine import SAMPLING as SAMPLING
from .engine import Engine as Engine
from .levels import constants as constants
from .levels import engine_from as engine_from
from .levels import engine_of as engine_of
from .levels import levels as levels
from .levels import spread_of as spread_of
from .levels import usual_sampling as usual_sampling
