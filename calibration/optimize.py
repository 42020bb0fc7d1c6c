"""Fit the corrections to measured tables of public campaigns; else the same as
`diffenergy fit`.

    python calibration/optimize.py DATA.csv OP=DATA.csv ... --workloads F.jsonl \
        --out corrections.json
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from diffenergy.cli import main  # noqa: E402

if __name__ == "__main__":
    meter = str(Path(__file__).with_name("meter.py"))
    sys.exit(main(["fit", *sys.argv[1:], "--meter", meter]))
