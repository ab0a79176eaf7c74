"""Devices through the real ctypes and nvidia-ml-py code, over the stand-in for the driver in ``fake_driver``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from fake_driver import FAST, SLOW, build

from pytest_kernelopt.core import device


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


def run(code: str, libraries: Path | None, **environ: str) -> Any:
    env = {k: v for k, v in os.environ.items() if k not in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")} | environ
    if libraries is not None:
        env["LD_LIBRARY_PATH"] = str(libraries)
    script = f"import json, os\nfrom pytest_kernelopt.core import device, nvml\n{textwrap.dedent(code)}"
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LIST = "print(json.dumps([g.model_dump() for g in device.gpus()]))"


def test_gpus_come_in_cuda_order_with_the_figures_of_the_device_properties(driver: Path) -> None:
    fast, slow = run(LIST, driver)
    assert fast == {
        "index": 0,
        "name": "Fast card",
        "uuid": f"GPU-{FAST}",
        "capability": [9, 0],
        "driver": "580.159.04",
        "memory_bytes": 141 << 30,
        "l2_bytes": 60 << 20,
        "sm_count": 132,
    }
    assert (slow["index"], slow["uuid"], slow["capability"]) == (1, f"GPU-{SLOW}", [7, 5])


@pytest.mark.parametrize("visible", ["1", f"GPU-{SLOW[:8]}"])
def test_cuda_visible_devices_is_obeyed_as_cuda_obeys_it(driver: Path, visible: str) -> None:
    (only,) = run(LIST, driver, CUDA_VISIBLE_DEVICES=visible)
    assert (only["index"], only["name"]) == (0, "Slow card")


def test_an_empty_cuda_visible_devices_hides_every_gpu_and_is_named_as_the_reason(driver: Path) -> None:
    found, reason = run("print(json.dumps([device.select(), device.why_none()]))", driver, CUDA_VISIBLE_DEVICES="")
    assert found is None
    assert reason == "CUDA_VISIBLE_DEVICES='' leaves no GPU visible"


def test_a_gpu_number_that_does_not_exist_is_the_users_mistake(driver: Path) -> None:
    code = """
    from pytest_kernelopt.core.errors import KernelError
    try:
        device.select(2)
    except KernelError as error:
        print(json.dumps(str(error)))
    """
    assert run(code, driver) == "--kopt-gpu 2: no such GPU; this process sees 0: Fast card, 1: Slow card"


def test_conditions_are_those_of_the_card_with_that_uuid_and_not_of_nvmls_number(driver: Path) -> None:
    code = f"""
    one = device.conditions("GPU-{FAST}", ours=[1])
    two = device.conditions("GPU-{SLOW}", ours=[])
    print(json.dumps([one.model_dump(), two.model_dump()]))
    """
    fast, slow = run(code, driver)
    assert (fast["sm_clock_mhz"], fast["memory_clock_mhz"], fast["throttle_reasons"]) == (345, 3201, [])
    assert fast["other_processes"] == 1
    # the slow card doesn't tell its SM clock: absent, not 0
    assert (slow["sm_clock_mhz"], slow["memory_clock_mhz"], slow["other_processes"]) == (None, 5001, 0)
    assert slow["throttle_reasons"] == ["hardware slowdown", "hardware thermal slowdown"]


def test_a_card_that_nvml_does_not_know_has_no_conditions_rather_than_anothers(driver: Path) -> None:
    found = run('print(json.dumps(device.conditions("GPU-33333333-0000-0000-0000-000000000000").model_dump()))', driver)
    assert found.pop("throttle_reasons") == []
    assert set(found.values()) == {None}


def test_pids_of_another_namespace_are_not_called_strangers(driver: Path) -> None:
    code = f"""
    device._pid_namespace = lambda: "pid:[4026532000]"
    unknown = device.conditions("GPU-{FAST}", ours=[2]).other_processes
    known = device.conditions("GPU-{FAST}", ours=[1]).other_processes
    device._pid_namespace = lambda: device._HOST_PID_NAMESPACE
    print(json.dumps([unknown, known, device.conditions("GPU-{FAST}", ours=[2]).other_processes]))
    """
    assert run(code, driver) == [None, 1, 2]


def test_the_monitor_reports_the_range_of_clocks_and_every_throttle_reason_seen(driver: Path) -> None:
    code = f"""
    import time
    with device.Monitor("GPU-{FAST}", ours=[1], every=0.002) as monitor:
        time.sleep(0.1)
    print(json.dumps(monitor.conditions.model_dump()))
    """
    found = run(code, driver)
    assert found == {
        "sm_clock_mhz": 1980,
        "sm_clock_min_mhz": 345,
        "sm_clock_max_mhz": 1980,
        "memory_clock_mhz": 3201,
        "throttle_reasons": ["software power cap"],
        "other_processes": 1,
    }


def test_without_nvml_the_gpus_are_still_there_and_only_their_state_is_unknown(driver: Path) -> None:
    code = """
    gpus = device.gpus()
    state = device.conditions(gpus[0].uuid).model_dump()
    print(json.dumps([[g.uuid for g in gpus], state, nvml.library()[1], len(nvml.listed())]))
    """
    uuids, state, reason, listed = run(code, driver, FAKE_NVML="4")
    assert uuids == [f"GPU-{FAST}", f"GPU-{SLOW}"]
    assert state["sm_clock_mhz"] is None
    assert state["other_processes"] is None
    assert reason == "NVML does not start: Insufficient Permissions"
    assert listed == 0


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"FAKE_CUINIT": "802"}, "the CUDA driver does not start: CUDA_ERROR_SYSTEM_NOT_READY (802): the system is not ready"),
        ({"FAKE_CUINIT": "999"}, "the CUDA driver does not start: CUDA_ERROR_OTHER (999)"),
        ({"FAKE_CRASH": "1"}, "the CUDA driver cannot be asked: "),
        ({"FAKE_HANG": "1"}, "the CUDA driver did not answer within 1 s"),
    ],
)
def test_a_driver_that_fails_is_one_sentence(driver: Path, environ: dict[str, str], reason: str) -> None:
    code = "device._PROBE_SECONDS = 1.0\nprint(json.dumps([device.select(), device.why_none()]))"
    found, why = run(code, driver, **environ)
    assert found is None
    assert why.startswith(reason)


def test_no_driver_is_one_sentence(tmp_path: Path) -> None:
    # an unreadable stand-in, so that the test holds on a machine with a driver too
    (tmp_path / "libcuda.so.1").write_text("not a library")
    why = run("print(json.dumps(device.why_none()))", tmp_path)
    assert "libcuda.so.1" in str(why)


def test_the_family_holds_grandchildren_and_no_strangers() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 30 & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        found = device.family()
        os.killpg(child.pid, 9)
    assert {os.getpid(), child.pid, grandchild} <= found
    assert os.getppid() not in found
