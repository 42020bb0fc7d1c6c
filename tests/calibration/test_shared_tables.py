"""The shipped corrections against measured kernels of Hopper (their rows were fitted).

Thirty rows of each kind above 100 us, evenly spaced in the table. The limits are the
mean errors of these rows plus 3 % of themselves, so that what moves a kind is seen;
what is better should lower them.
"""

import numpy as np
import pandas as pd
import pytest

from calibration.campaigns import meter
from diffenergy import measurements
from diffenergy.corrections import read_corrections
from diffenergy.fitting import predict
from diffenergy.measurements import errors_by_group

pytestmark = [pytest.mark.shared_data, pytest.mark.slow]

ROWS = 30
# table, operand type -> mean error of time, power in percent
KINDS = [
    ("h100_sxm_gemm_latency", "bfloat16", 12.11, None),
    ("h100_sxm_gemm_latency", "fp8", 12.66, None),
    ("h200_sxm_gemm_power", "bfloat16", 6.07, 4.42),
    ("h200_sxm_gemm_power", "fp8_block", 9.09, 5.14),
    ("h200_sxm_context_attention_power", "bfloat16", 11.58, 26.35),
    ("h200_sxm_context_attention_power", "fp8", 9.44, 17.78),
    ("h200_sxm_generation_attention_power", "bfloat16", 13.44, 27.06),
    ("h200_sxm_generation_attention_power", "fp8", 8.22, 25.93),
    ("h200_sxm_moe_power", "bfloat16", 8.25, 9.32),
    ("h200_sxm_moe_power", "fp8", 3.48, 19.16),
    ("h200_sxm_moe_power", "fp8_block", 4.36, 15.33),
]


@pytest.mark.parametrize(("name", "dtype", "time", "power"), KINDS)
def test_mean_errors(shared, tmp_path, name, dtype, time, power):
    table = pd.read_csv(shared / "data" / "aiconfigurator" / f"{name}.csv.gz")
    kind = table.kv_cache_dtype if "attention" in name else table.dtype
    rows = table[(kind == dtype) & (table.time_us > 100)]
    rows = rows.iloc[np.linspace(0, len(rows) - 1, ROWS).astype(int)]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    op = name.split("_", 2)[2].rsplit("_", 1)[0]
    measured = measurements.read([f"{op}={tmp_path / 'rows.csv'}"], meter=meter)
    (group,) = errors_by_group(measured, predict(measured, read_corrections()), ["gpu"])
    assert group["rows"] == ROWS
    assert group["time_mape_pct"] < 1.03 * time
    assert power is None or group["power_mape_pct"] < 1.03 * power
