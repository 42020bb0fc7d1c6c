"""NVML calls as a board answers them, through a package that only pretends."""

import math
import sys
import types

import pytest

from diffenergy.measure._sensor import NoPermission, Sensor, SensorError


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"code {value}")
        self.value = value


def thing(**fields):
    return types.SimpleNamespace(**fields)


READINGS = {
    "TotalEnergyConsumption": 12345, "PowerUsage": 401234, "ClockInfo": 1980,
    "Temperature": 55, "PowerManagementLimit": 700000,
}  # fmt: skip
LISTS = {
    "CurrentClocksThrottleReasons": 4,
    "PowerManagementLimitConstraints": [200000, 700000],
    "SupportedMemoryClocks": [3201, 1000],
    "ComputeRunningProcesses": [thing(pid=7)],
}
FACTS = {
    "Count": 2, "HandleByIndex": "handle", "Name": "NVIDIA H200", "UUID": "GPU-2",
    "MemoryInfo": thing(total=141 * 10**9), "EccMode": [1, 1], "MigMode": NVMLError(3),
    "SupportedGraphicsClocks": [1980, 1965, 345],
}  # fmt: skip
SET = ("SetGpuLockedClocks", "ResetGpuLockedClocks", "SetPowerManagementLimit")


@pytest.fixture
def nvml(monkeypatch):
    """The package; `answers` by call, an exception instead of an answer is raised."""
    module = types.ModuleType("pynvml")
    answers = {
        "nvmlInit": None,
        "nvmlSystemGetDriverVersion": "570.86",
        "nvmlSystemGetCudaDriverVersion": 12080,
        **{f"nvmlDeviceGet{x}": y for x, y in (READINGS | LISTS | FACTS).items()},
        **{f"nvmlDevice{x}": None for x in SET},
    }
    calls = []

    def call(name):
        def answer(*args):
            calls.append((name, *args))
            if isinstance(answers[name], Exception):
                raise answers[name]
            return answers[name]

        return answer

    for name in answers:
        setattr(module, name, call(name))
    for name, value in (("CLOCK_SM", 1), ("CLOCK_MEM", 2), ("TEMPERATURE_GPU", 0)):
        setattr(module, f"NVML_{name}", value)
    module.__dict__["NVMLError"] = NVMLError
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return thing(answers=answers, calls=calls)


def test_readings_in_si(nvml):
    board = Sensor(1)
    about = board.about
    assert (about.index, about.name, about.uuid) == (1, "NVIDIA H200", "GPU-2")
    assert (about.driver, about.cuda, about.memory) == ("570.86", "12.8", 1.41e11)
    assert (about.ecc, about.mig) == (True, None)
    assert (board.energy(), board.power()) == pytest.approx((12.345, 401.234))
    assert (board.sm_clock(), board.temperature()) == (1.98e9, 55.0)
    assert (board.reasons(), board.power_limit()) == (4, 700.0)
    assert board.power_limits() == (200.0, 700.0)
    assert board.clocks() == (3.45e8, 1.965e9, 1.98e9)
    assert board.processes() == {7}
    assert ("nvmlDeviceGetSupportedGraphicsClocks", "handle", 3201) in nvml.calls


@pytest.mark.parametrize("answer", [0, NVMLError(3), NVMLError(13), NVMLError(21)])
def test_what_is_not_told_is_nan(nvml, answer):
    board = Sensor(0)
    nvml.answers.update({f"nvmlDeviceGet{name}": answer for name in READINGS})
    calls = (board.energy, board.power, board.sm_clock, board.mem_clock)
    for reading in (*calls, board.temperature, board.power_limit):
        assert math.isnan(reading())


def test_lists_that_are_not_told(nvml):
    board = Sensor(0)
    nvml.answers.update({f"nvmlDeviceGet{name}": NVMLError(3) for name in LISTS})
    assert board.clocks() == () and board.processes() is None
    assert board.power_limits() is None and board.reasons() == 0


def test_a_lost_board_is_an_error(nvml):
    board = Sensor(0)
    nvml.answers["nvmlDeviceGetPowerUsage"] = NVMLError(15)
    with pytest.raises(SensorError, match="no longer answers"):
        board.power()


def test_setting(nvml):
    board = Sensor(0)
    board.lock_clock(1.41e9)
    board.set_power_limit(300.5)
    board.unlock_clock()
    assert nvml.calls[-3:] == [
        ("nvmlDeviceSetGpuLockedClocks", "handle", 1410, 1410),
        ("nvmlDeviceSetPowerManagementLimit", "handle", 300500),
        ("nvmlDeviceResetGpuLockedClocks", "handle"),
    ]


@pytest.mark.parametrize("code, kind", [(4, NoPermission), (3, SensorError)])
def test_what_may_not_be_set(nvml, code, kind):
    board = Sensor(0)
    nvml.answers.update({f"nvmlDevice{name}": NVMLError(code) for name in SET})
    with pytest.raises(kind):
        board.lock_clock(1e9)
    with pytest.raises(kind):
        board.set_power_limit(300.0)


def test_no_gpu_and_no_package(nvml, monkeypatch):
    with pytest.raises(ValueError, match="2 NVIDIA GPUs"):
        Sensor(2)
    nvml.answers["nvmlInit"] = NVMLError(9)
    with pytest.raises(ValueError, match="no NVIDIA GPU is found"):
        Sensor(0)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ValueError, match="pip install nvidia-ml-py"):
        Sensor(0)
