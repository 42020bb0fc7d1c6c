"""Logs of power meters made by hand, and rows of tables."""

MONITOR = (
    "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n"
    "100.0,epoch,10.0,3000.0,1000.0\n"
    "102.0,step,1.0,300.0,0\n"
)


CARBON = (
    "timestamp,project_name,run_id,duration,emissions,cpu_power,gpu_power,"
    "cpu_energy,gpu_energy,ram_energy,energy_consumed,gpu_count,gpu_model\n"
)


def carbon(*rows: str) -> str:
    return CARBON + "\n".join(rows) + "\n"


def run(
    stamp: str = "2024-05-01T10:00:00",
    run_id: str = "r1",
    seconds: float = 100.0,
    power: float = 720.0,
    energy: float = 0.02,
    gpus: str = "2,2 x NVIDIA A10",
) -> str:
    cells = (stamp, "bert", run_id, seconds, 0.1, 50, power, 0.5, energy, 0.1, 0.62)
    return ",".join(map(str, (*cells, gpus)))


SMI = (
    "timestamp, name, index, power.draw [W], clocks.current.sm [MHz], "
    "clocks.current.memory [MHz], temperature.gpu, utilization.gpu [%], "
    "power.limit [W]\n"
)


def sample(
    second: float, watt: float, index: int = 0, use: int = 100, unit: bool = True
) -> str:
    w, mhz, share = (" W", " MHz", " %") if unit else ("", "", "")
    return (
        f"2024/05/01 10:00:{second:06.3f}, NVIDIA A10, {index}, {watt}{w}, 1500{mhz}, "
        f"6251{mhz}, 60, {use}{share}, 150.00{w}\n"
    )


SHARES = {"SM_ACTIVE": 0.9, "SM_OCCUPANCY": 0.5, "DRAM_ACTIVE": 0.4}


def scrape(
    power: float = 300.0,
    counter: float | None = None,
    stamp: str = "",
    labels: str = 'gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"',
    shares: dict[str, float] = SHARES,
    help_lines: bool = True,
) -> str:
    values = {
        "DCGM_FI_DEV_POWER_USAGE": power,
        "DCGM_FI_DEV_SM_CLOCK": 1755,
        "DCGM_FI_DEV_MEM_CLOCK": 2619,
        "DCGM_FI_DEV_GPU_TEMP": 50,
        **{f"DCGM_FI_PROF_{name}": value for name, value in shares.items()},
    }
    if counter is not None:
        values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] = counter
    return "".join(
        (f"# HELP {name} text\n# TYPE {name} gauge\n" if help_lines else "")
        + f"{name}{{{labels}}} {value}{stamp}\n"
        for name, value in values.items()
    )
