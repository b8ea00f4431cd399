"""Report the utilization of this machine's GPUs: the share of time in which each runs a kernel.

NVIDIA's is read from NVML, a library that comes with the driver, and AMD's from sysfs. NVML is open
while samples are taken and not longer, as an open one keeps the driver from being replaced. A
broken driver may block it for ever: `__main__` runs this in a thread of its own.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from railwright_agent import kernel
from railwright_agent.reporting import TIMEOUT_S, ControllersClient, ReportRefusedError
from railwright_topology.parts import PARTS_MAX

PATH = "/v1/gpu-utilization"
NVML = "libnvidia-ml.so.1"
SAMPLES, SAMPLE_S = 10, 1.0
"""A driver's own value is of a second or less."""
PAUSE_S = 50.0
"""5,000 agents are 83 requests a second."""


class _Percents(ctypes.Structure):
    """NVML's nvmlUtilization_t, in percent."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def run(
    controllers: ControllersClient,
    *,
    rng: random.Random,
    log: Callable[[str], object],
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Report for ever. A machine without readable GPUs reports nothing."""
    failure = ""
    while True:
        if shares := measure(controllers.sources.root, pause):
            try:
                controllers.post(PATH, {"gpus": shares}, TIMEOUT_S)
                failure = ""
            except ReportRefusedError as refused:
                if failure != str(refused):
                    log(f"utilization report failed: {refused}")
                failure = str(refused)
        pause(rng.uniform(0.5, 1.5) * PAUSE_S)


def measure(root: Path, pause: Callable[[float], object]) -> list[float]:
    """The mean of a few samples of each GPU, from 0 to 1."""
    percents: dict[str, list[int]] = defaultdict(list)
    library = _opened()
    for _ in range(SAMPLES):
        for gpu, percent in (*_nvidia(library), *_amd(root)):
            percents[gpu].append(min(percent, 100))
        if not percents:
            break
        pause(SAMPLE_S)
    if library is not None:
        library.nvmlShutdown()
    return [statistics.fmean(each) / 100 for each in percents.values()][:PARTS_MAX]


def _opened() -> Any:
    """NVML; None if it is not installed, or if it has no driver."""
    try:
        library = ctypes.CDLL(NVML)
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


def _nvidia(library: Any) -> Iterator[tuple[str, int]]:
    """A GPU without a value, such as one that is split by MIG, is left out."""
    count = ctypes.c_uint()
    if library is None or library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return
    for index in range(count.value):
        gpu, percents = ctypes.c_void_p(), _Percents()
        if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu)) != 0:
            continue
        if library.nvmlDeviceGetUtilizationRates(gpu, ctypes.byref(percents)) == 0:
            yield f"nvidia {index}", percents.gpu


def _amd(root: Path) -> Iterator[tuple[str, int]]:
    for address, files in kernel.devices(root, ("gpu_busy_percent",)):
        if files.get("gpu_busy_percent", "").isdecimal():
            yield address, int(files["gpu_busy_percent"])
