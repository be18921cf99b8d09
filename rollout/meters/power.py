"""Power and energy: NVIDIA's own readings where there are some, else an estimate that says so."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import pairwise, takewhile
from typing import Any

WATTS_A_CORE = 10.0  # assumed for the estimate: a server core under load, its share of memory and fans included
JOULES = 3_600_000.0  # of a kWh


class PowerMeter:
    """Reads the GPUs that this process may use: all that NVML shows, or those that CUDA_VISIBLE_DEVICES names. Blocking, a few
    milliseconds at most."""

    def __init__(self, nvml: Any, devices: Sequence[Any]) -> None:
        self._nvml = nvml
        self._devices = devices

    @classmethod
    def find(cls) -> PowerMeter | None:
        """Return a meter, None where there is no NVML or no GPU."""
        try:
            nvml = import_module("pynvml")
            nvml.nvmlInit()
            devices = [_handle(nvml, name) for name in _visible(nvml.nvmlDeviceGetCount())]
        except Exception:  # noqa: BLE001 - no package, no driver, no such device: each means that nothing can be read
            return None
        return cls(nvml, devices) if devices else None

    @property
    def devices(self) -> int:
        return len(self._devices)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(_text(self._nvml.nvmlDeviceGetName(device)) for device in self._devices)

    @property
    def driver(self) -> str:
        return _text(self._nvml.nvmlSystemGetDriverVersion())

    def read(self) -> tuple[float | None, float | None]:
        """Both readings."""
        return self.watts(), self.memory_mb()

    def watts(self) -> float | None:
        """What all devices draw now; None when they do not say."""
        try:
            milliwatts: float = sum(self._nvml.nvmlDeviceGetPowerUsage(device) for device in self._devices)
            return round(milliwatts / 1000, 1)
        except Exception:  # noqa: BLE001 - a device may stop answering; a gap in the samples is what that is
            return None

    def memory_mb(self) -> float | None:
        """Memory in use on the fullest device."""
        try:
            used: int = max(self._nvml.nvmlDeviceGetMemoryInfo(device).used for device in self._devices)
            return round(used / 2**20, 1)
        except Exception:  # noqa: BLE001 - as above
            return None


def energy(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a run's energy: the trapezoid over the samples of power, else CPU seconds times an assumed power of a core."""
    samples = [(e["at"], e["watts"]) for e in events if e["kind"] == "power"]
    if len(samples) > 1:
        joules = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(samples))
        return {
            "kwh": round(joules / JOULES, 6),
            "how": "measured: NVML, the trapezoid over all samples, only the GPUs that the run could use",
            "samples": len(samples),
            "watts_mean": round(sum(w for _, w in samples) / len(samples), 1),
            "watts_peak": max(w for _, w in samples),
        }
    cpu = [e["cpu_s"] for e in events if e["kind"] == "lines"]
    spent = cpu[-1] - cpu[0] if len(cpu) > 1 else None
    return {
        "kwh": None if spent is None else round(spent * WATTS_A_CORE / JOULES, 9),
        "how": f"estimated, not measured: CPU seconds of this process and its ended children times {WATTS_A_CORE:g} W (assumed)",
        "samples": 0,
        "cpu_s": None if spent is None else round(spent, 2),
        "watts_mean": None,
        "watts_peak": None,
    }


def _visible(count: int) -> list[str]:
    """The indices or UUIDs of this process' GPUs; what comes after one that does not exist is not seen, as CUDA has it."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(n) for n in range(count)]
    whole = [name.strip() for name in named.split(",")]
    return list(takewhile(lambda name: name and (not name.lstrip("-").isdigit() or 0 <= int(name) < count), whole))


def _handle(nvml: Any, name: str) -> Any:
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
