"""Kernels under pytest-xdist: each worker has one GPU, and the workers that share one take turns on it.

The turns are the evaluator's, by a lock for each GPU, so any number of workers is right: more of them build and verify
side by side, and no two are on one GPU at once.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def assign(specs: Sequence[Any], gpus: Sequence[str]) -> None:
    """Give each local worker one of the GPUs in turn, in its environment: before its first conftest, and after a restart."""
    if not gpus:
        return
    local = [spec for spec in specs if spec.popen]
    for spec, gpu in zip(local, itertools.cycle(gpus), strict=False):
        spec.env["CUDA_VISIBLE_DEVICES"] = gpu


def visible_gpus(environ: Mapping[str, str]) -> list[str]:
    """The GPUs to spread over, as CUDA_VISIBLE_DEVICES names them.

    One that the caller has set is a limit, never widened. Else all of the machine, by UUID: NVML and CUDA number them
    differently. A machine with one GPU, or none, has nothing to spread.
    """
    outer = environ.get("CUDA_VISIBLE_DEVICES")
    if outer is not None:
        return [name for name in (part.strip() for part in outer.split(",")) if name and name != "-1"]
    from .core import device, nvml

    return [gpu.uuid for gpu in device.gpus(environ)] if len(nvml.listed()) > 1 else []


def workers(config: pytest.Config) -> int | None:
    """``-n auto`` where only kernel files were named: one worker a GPU. None, xdist's own count, for everything else.

    ``-n auto`` is the whole suite's: on a machine of 64 cores and one GPU it would run all other tests one by one. But where
    nothing else is run, 64 workers would keep 64 contexts on one GPU and wait for each other.
    """
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or not config.args:
        return None
    from .collect import has_kernel_name

    named = [config.invocation_params.dir / arg.split("::")[0] for arg in config.args]
    if not all(has_kernel_name(path) and path.is_file() for path in named):
        return None
    outer = os.environ.get("CUDA_VISIBLE_DEVICES")
    if outer is not None:
        return len(visible_gpus(os.environ)) or None
    from .core import nvml

    return len(nvml.listed()) or None
