"""Measure kernels on a GPU of this machine; the same as `diffenergy measure`.

python calibration/measure.py --out mine.csv
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from diffenergy.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["measure", *sys.argv[1:]]))
