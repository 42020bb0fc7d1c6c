"""How public campaigns read time and power, for `--meter`:

diffenergy evaluate MEASUREMENTS.csv --meter calibration/meter.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from calibration.campaigns import meter  # noqa: E402

__all__ = ["meter"]
