"""What is fitted: constants with priors, their levels, and the files that hold them."""

from .constants import CONSTANTS, Corrections, is_share
from .levels import (
    CorrectionsFile,
    Levels,
    Tagged,
    prior_file,
    prior_levels,
    read_corrections,
    resolve,
    write_corrections,
)
from .priors import ACTIVITY_CONSTANTS, INSTRUMENTS, PRIOR_FACTORS
from .sensors import SENSOR_CONSTANTS, Sensor, sensor_centre
from .spread import Trust

__all__ = [
    "ACTIVITY_CONSTANTS",
    "CONSTANTS",
    "INSTRUMENTS",
    "PRIOR_FACTORS",
    "SENSOR_CONSTANTS",
    "Corrections",
    "CorrectionsFile",
    "Levels",
    "Sensor",
    "Tagged",
    "Trust",
    "is_share",
    "prior_file",
    "prior_levels",
    "read_corrections",
    "resolve",
    "sensor_centre",
    "write_corrections",
]
