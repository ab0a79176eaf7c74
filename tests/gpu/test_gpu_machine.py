"""The GPU as NVML, the CUDA driver and torch see it, and its measured ceilings."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_kernelopt.core import cuda_probe, device, nvml, preflight
from pytest_kernelopt.core.isolate.runner import Child, Servers
from pytest_kernelopt.core.records import Gpu
from pytest_kernelopt.core.timing import ceilings
from pytest_kernelopt.core.timing.ceilings import Ceilings

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(device.select() is None, reason=f"no GPU: {device.why_none()}")]


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return device.find()


@pytest.fixture(scope="module")
def child(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    servers = Servers(tmp_path_factory.mktemp("children"), gpu=gpu.uuid)
    child = servers.start("gpu", untrusted=False)
    yield child
    child.close()
    servers.close()


@pytest.fixture(scope="module")
def measured(child: Child) -> tuple[Ceilings, float]:
    started = time.monotonic()
    found = child.call(ceilings.measure, timeout=120)
    return Ceilings.from_json(found), time.monotonic() - started


def test_the_gpu_is_the_one_that_torch_calls_by_that_number(gpu: Gpu) -> None:
    code = (
        "import json, torch; p = torch.cuda.get_device_properties(0); "
        "print(json.dumps([p.name, str(p.uuid), p.L2_cache_size, p.multi_processor_count, p.total_memory]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, uuid, l2, sms, memory = json.loads(done.stdout)
    assert (gpu.name, gpu.l2_bytes, gpu.sm_count, gpu.memory_bytes) == (name, l2, sms, memory)
    assert gpu.uuid.removeprefix("GPU-") == uuid.removeprefix("GPU-")


def test_asking_for_gpus_does_not_start_cuda_in_the_process() -> None:
    """NVML itself may load libcuda; what must not happen is ``cuInit``, after which a fork can't use CUDA."""
    code = (
        "import ctypes; from pytest_kernelopt.core import device; gpu = device.find(); device.conditions(gpu.uuid); "
        "print(ctypes.CDLL('libcuda.so.1').cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    not_initialized = "3"  # CUDA_ERROR_NOT_INITIALIZED
    assert done.stdout.strip() == not_initialized


def test_ceilings_are_below_the_bounds_of_the_hardware_and_near_them(measured: tuple[Ceilings, float]) -> None:
    found, seconds = measured
    assert found.dram_gb_s is not None
    assert found.dram_peak_gb_s is not None
    assert 0.6 * found.dram_peak_gb_s < found.dram_gb_s < found.dram_peak_gb_s
    assert found.l2_gb_s is not None
    assert found.l2_peak_gb_s is not None
    assert found.dram_gb_s < found.l2_gb_s < found.l2_peak_gb_s
    assert found.tflops["float16"] > found.tflops["float32"]
    assert all(found.tflops_peak[name] > 0.95 * rate for name, rate in found.tflops.items())
    assert seconds < 15, "about three seconds, and loading the kernels"


def test_a_monitor_sees_the_clocks_of_a_busy_gpu(gpu: Gpu, child: Child) -> None:
    with device.Monitor(gpu.uuid) as monitor:
        child.call(ceilings.measure, timeout=120)
    most, _ = nvml.max_clocks(nvml.handle(gpu.uuid))
    assert most is not None
    assert monitor.conditions.sm_clock_max_mhz is not None
    assert monitor.conditions.sm_clock_max_mhz > 0.5 * most
    assert monitor.conditions.memory_clock_mhz is not None


def test_the_probe_tells_the_clocks_that_the_bounds_come_from(gpu: Gpu) -> None:
    done = subprocess.run([sys.executable, cuda_probe.__file__], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)["devices"][gpu.index]
    assert found["memory_clock_khz"] > 1_000_000
    assert found["memory_bus_bits"] >= 64
    assert found["clock_khz"] > 500_000


def test_the_preflight_of_a_machine_with_a_gpu_is_ready(tmp_path: Path) -> None:
    report = preflight.run([], cache=tmp_path)
    print(preflight.render(report))
    assert [check for check in report.checks if check.required and check.status == "missing"] == []
    driver = next(check for check in report.checks if check.name == "driver")
    assert driver.detail.endswith("a compiled kernel runs")
    assert preflight.header()[0].startswith(f"kernelopt: {report.environment.gpu.name} (sm_")  # type: ignore[union-attr]
