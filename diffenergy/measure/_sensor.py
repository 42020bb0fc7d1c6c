"""Readings and settings of a board through NVML."""

import dataclasses
import math
from typing import Any, Final

from ..units import MHz

UNAVAILABLE: Final = (2, 3, 6, 13, 21)
"""NVML codes of what a board does not tell: invalid argument, not supported, not found,
no such function, no data."""
_NO_PERMISSION: Final = 4

REASONS: Final = {
    0x02: "applications_clocks",
    0x04: "power_cap",
    0x08: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
    0x100: "display_clocks",
}
"""Bits of NVML's clock event (throttle) reasons; 1, an idle GPU, is none."""


class SensorError(ValueError):
    """The sensor failed for good; the message says what to do."""


class NoPermission(ValueError):
    """This user may not set clocks or power limits."""


@dataclasses.dataclass(frozen=True)
class About:
    """Names of a board and of its driver; None: not told."""

    index: int
    name: str
    uuid: str
    memory: float  # B
    driver: str
    cuda: str
    ecc: bool | None = None
    mig: bool | None = None


class Sensor:
    """The board `index` of this machine, counted as `nvidia-smi` does, through NVML
    (package `nvidia-ml-py`). Readings are SI (temperature: C), NaN where the board
    tells none."""

    about: About

    def __init__(self, index: int):
        try:
            import pynvml  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise ValueError(
                "`measure` reads the board through NVML, whose package is missing; "
                "`pip install nvidia-ml-py` brings it."
            ) from None
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            count = int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            raise ValueError(
                f"no NVIDIA GPU is found (NVML: {error}); run `measure` on a machine "
                "with one and its driver; `--dry-run` shows the plan anywhere."
            ) from None
        if not 0 <= index < count:
            raise ValueError(
                f"`--gpu-index` is {index}; this machine has {count} NVIDIA GPUs, "
                "counted from 0 as `nvidia-smi` does."
            )
        try:
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            raise SensorError(f"GPU {index} does not answer ({error}).") from None
        self.about = self._about(index)

    def _about(self, index: int) -> About:
        memory = self._query("nvmlDeviceGetMemoryInfo")
        version = self._query("nvmlSystemGetCudaDriverVersion", of_board=False) or 0
        ecc = self._query("nvmlDeviceGetEccMode")
        mig = self._query("nvmlDeviceGetMigMode")
        return About(
            index=index,
            name=str(self._query("nvmlDeviceGetName") or ""),
            uuid=str(self._query("nvmlDeviceGetUUID") or ""),
            memory=float(memory.total) if memory else math.nan,
            driver=str(self._query("nvmlSystemGetDriverVersion", of_board=False) or ""),
            cuda=f"{version // 1000}.{version % 1000 // 10}" if version else "",
            ecc=None if ecc is None else bool(ecc[0]),
            mig=None if mig is None else bool(mig[0]),
        )

    def energy(self) -> float:
        """Counter of all energy so far, J."""
        return self._number("nvmlDeviceGetTotalEnergyConsumption", 1e-3)

    def power(self) -> float:
        """Mean of the sensor's own window (often the last second), W."""
        return self._number("nvmlDeviceGetPowerUsage", 1e-3)

    def sm_clock(self) -> float:
        return self._number("nvmlDeviceGetClockInfo", MHz, self._nvml.NVML_CLOCK_SM)

    def mem_clock(self) -> float:
        return self._number("nvmlDeviceGetClockInfo", MHz, self._nvml.NVML_CLOCK_MEM)

    def temperature(self) -> float:
        return self._number(
            "nvmlDeviceGetTemperature", 1.0, self._nvml.NVML_TEMPERATURE_GPU
        )

    def reasons(self) -> int:
        """Bits of `REASONS` that hold the clock now."""
        for name in ("Event", "Throttle"):  # by the age of the driver
            bits = self._query(f"nvmlDeviceGetCurrentClocks{name}Reasons")
            if bits is not None:
                return int(bits)
        return 0

    def power_limit(self) -> float:
        return self._number("nvmlDeviceGetPowerManagementLimit", 1e-3)

    def power_limits(self) -> tuple[float, float] | None:
        """Least and greatest limit that can be set, W."""
        limits = self._query("nvmlDeviceGetPowerManagementLimitConstraints")
        return None if limits is None else (1e-3 * limits[0], 1e-3 * limits[1])

    def clocks(self) -> tuple[float, ...]:
        """SM clocks that can be locked, Hz, ascending; empty where not told."""
        memory = self._query("nvmlDeviceGetSupportedMemoryClocks")
        if not memory:
            return ()
        clocks = self._query("nvmlDeviceGetSupportedGraphicsClocks", max(memory))
        return tuple(sorted(clock * MHz for clock in clocks or ()))

    def processes(self) -> frozenset[int] | None:
        """Process ids that compute on the board."""
        processes = self._query("nvmlDeviceGetComputeRunningProcesses")
        return (
            None if processes is None else frozenset(int(one.pid) for one in processes)
        )

    def lock_clock(self, clock: float) -> None:
        mhz = round(clock / MHz)
        self._set("nvmlDeviceSetGpuLockedClocks", mhz, mhz)

    def unlock_clock(self) -> None:
        self._set("nvmlDeviceResetGpuLockedClocks")

    def set_power_limit(self, limit: float) -> None:
        self._set("nvmlDeviceSetPowerManagementLimit", round(1e3 * limit))

    def _number(self, name: str, scale: float, *args: Any) -> float:
        """A reading in SI; 0 means that the board has none."""
        value = self._query(name, *args)
        return scale * value if value else math.nan

    def _query(self, name: str, *args: Any, of_board: bool = True) -> Any:
        """Result of an NVML call, None where the board does not support it."""
        call = getattr(self._nvml, name, None)  # older drivers lack some
        if call is None:
            return None
        try:
            return call(*((self._handle, *args) if of_board else args))
        except self._nvml.NVMLError as error:
            if error.value in UNAVAILABLE:
                return None
            raise SensorError(
                f"the board no longer answers ({name}: {error}); see `nvidia-smi`."
            ) from None

    def _set(self, name: str, *args: Any) -> None:
        try:
            getattr(self._nvml, name)(self._handle, *args)
        except self._nvml.NVMLError as error:
            if error.value == _NO_PERMISSION:
                raise NoPermission(
                    "this user may not set clocks or power limits; run as "
                    "administrator or leave `--set-clocks` and `--set-power-limit` out."
                ) from None
            raise SensorError(
                f"the board does not let us set it ({name}: {error}); leave the flag "
                "out that asks for it."
            ) from None
