"""Whole runs of pytest on the device: what each item says, what is left behind, and what an end in the middle leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from workshop import LAUNCH, TRITON_TWICE, Workshop, cuda_text, eventually, processes_with, triton_text

MIB = 1 << 20
GOOD, BAD = 20, 8

REF = "cases = [{cases}]\n\ndef reference(x, y, n):\n    y.copy_({factor} * x)\n"
SEGFAULT = cuda_text(host=f"{LAUNCH} *reinterpret_cast<volatile int*>(8) = n;")
# right one program after the other, as in the interpreter; not when all run at once (TRI-11)
RACE = """\
import triton
import triton.language as tl

@triton.jit
def add(x, total, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.abs(tl.load(x + i, mask=i < n, other=0.0)), axis=0)
    tl.store(total, tl.load(total) + part)

def run_kernel(x, total, n):
    total.zero_()
    add[(triton.cdiv(n, 128),)](x, total, n, BLOCK=128)
"""
RACE_REF = """\
from jaxtyping import Float
from torch import Tensor

cases = [{"n": 131072}]

def reference(x: Float[Tensor, "n"]) -> Float[Tensor, "1"]:
    return x.abs().sum().reshape(1)
"""
# as pytest-forked and pytest-isolate do: the item runs in a process that is forked off pytest (PYT-17)
CONFTEST = """\
import json
import os

import pytest
from _pytest.runner import runtestprotocol


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    if "forked" not in item.nodeid:
        return None
    config = item.config
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            serialised = config.hook.pytest_report_to_serializable
            reports = [serialised(config=config, report=report) for report in runtestprotocol(item, log=False)]
            with open(write, "w") as out:
                json.dump(reports, out)
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as answers:
        text = answers.read()
    os.waitpid(pid, 0)
    for data in json.loads(text):
        item.ihook.pytest_runtest_logreport(report=config.hook.pytest_report_from_serializable(config=config, data=data))
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
"""
OWN_TEST = """\
def test_correctness_of_a_callable_of_this_process(kopt_timing):
    import torch

    x = torch.randn(1 << 20, device="cuda")
    timing = kopt_timing(lambda: x.mul_(1.0))
    assert 0 < timing.median_ms < 1
    assert timing.clock == "cupti"
"""
HANG = cuda_text(
    "while (*reinterpret_cast<const volatile float*>(x) != 123456.0f) {}",
    f'{LAUNCH} if (const char* name = getenv("KOPT_TEST_HANGS")) fclose(fopen(name, "w")); cudaDeviceSynchronize();',
    head="#include <cstdio>\n#include <cstdlib>",
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def environ(plugin_path: list[str], **more: str) -> dict[str, str]:
    """What a user's shell would have: nothing of the run that this test is part of."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "KOPT_", "CUDA_VISIBLE"))}
    kept["PYTHONPATH"] = os.pathsep.join([*plugin_path, *filter(None, [os.environ.get("PYTHONPATH")])])
    return kept | more


@dataclass
class Run:
    """One pytest: the items of its ``--kopt-json``, what it printed, and what it left."""

    items: dict[str, dict[str, Any]]
    status: int
    text: str
    left: list[int]
    memory: int

    def of(self, part: str) -> list[dict[str, Any]]:
        found = [item for nodeid, item in self.items.items() if part in nodeid]
        assert found, f"no item of {part} in {list(self.items)}:\n{self.text[-3000:]}"
        return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    write(folder / "pytest.ini", "[pytest]\n")
    write(folder / "conftest.py", CONFTEST)
    sizes = ", ".join(f'{{"n": {1000 + 37 * i}}}' for i in range(GOOD))
    write(folder / "good" / "twice.cu", cuda_text())
    write(folder / "good" / "twice_ref.py", REF.format(cases=sizes, factor=2))
    for i in range(BAD):
        write(folder / "bad" / f"crash{i}.cu", SEGFAULT)
        write(folder / "bad" / f"crash{i}_ref.py", REF.format(cases='{"n": 1000}', factor=2))
    many = ", ".join(f'{{"n": {1000 * i}}}' for i in range(1, 5))
    for name, factor in (("a", 2), ("b", 3)):  # PYT-01
        write(folder / name / "same_triton.py", triton_text(kernel=TRITON_TWICE.replace("2 *", f"{factor} *")))
        write(folder / name / "same_ref.py", REF.format(cases=many, factor=factor))
    write(folder / "Radix Sort (cub)" / "ядро.cu", cuda_text())  # CMP-11, CMP-13
    write(folder / "Radix Sort (cub)" / "ядро_ref.py", REF.format(cases='{"n": 1000}', factor=2))
    write(folder / "race_triton.py", RACE)
    write(folder / "race_ref.py", RACE_REF)
    write(folder / "forked.cu", cuda_text())
    write(folder / "forked_ref.py", REF.format(cases='{"n": 1000}', factor=2))
    write(folder / "test_own.py", OWN_TEST)
    return folder


def start(workshop: Workshop, project: Path, plugin_path: list[str], *args: str, **more: str) -> Run:
    token = uuid.uuid4().hex
    out = project / f"{token}.json"
    known = {"KOPT_CACHE_DIR": str(workshop.evaluator.cache.root), "KOPT_TEST_TOKEN": token, **more}
    before = workshop.used_memory()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--kopt-timeout=20", f"--kopt-json={out}", *args],
        cwd=project, env=environ(plugin_path, **known), capture_output=True, text=True, errors="replace", timeout=200,
        check=False,
    )  # fmt: skip
    eventually(lambda: not processes_with(token) and workshop.used_memory() <= before + 32 * MIB, 15)
    items = json.loads(out.read_text(encoding="utf-8"))["items"] if out.exists() else {}
    text = done.stdout + done.stderr
    print(text[-5000:])
    return Run(items, done.returncode, text, processes_with(token), workshop.used_memory() - before)


@pytest.fixture(scope="module")
def serial(workshop: Workshop, project: Path, plugin_path: list[str]) -> Run:
    """In the shell of a developer who has the interpreter switched on, in the C locale; one file by its node id."""
    named = [
        "good",
        "bad",
        "a",
        "b",
        "Radix Sort (cub)/ядро.cu::correctness[n1000]",
        "race_triton.py",
        "forked.cu",
        "test_own.py",
    ]
    shell = {"TRITON_INTERPRET": "1", "LANG": "C", "LC_ALL": "C"}
    return start(workshop, project, plugin_path, "-k", "correctness", *named, **shell)


@pytest.fixture(scope="module")
def spread(workshop: Workshop, project: Path, plugin_path: list[str]) -> Run:
    pytest.importorskip("xdist")
    return start(workshop, project, plugin_path, "-k", "correctness", "-n4", "good", "bad", "a", "b")


@pytest.fixture(params=["serial", "spread"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def test_eight_crashing_items_among_thirty_fail_alone(run: Run) -> None:
    """PYT-15."""
    crashed, good = run.of("bad/crash"), run.of("good/twice.cu::correctness")
    assert [item["outcome"] for item in crashed] == ["failed"] * BAD
    assert all("crashed with signal 11" in item["correctness"]["message"] for item in crashed)
    assert [item["outcome"] for item in good] == ["passed"] * GOOD
    assert run.status == 1


def test_files_of_one_name_have_their_own_module_and_reference(run: Run) -> None:
    """PYT-01; under xdist also TRI-19 and PYT-29: workers that compile one kernel with a cold cache, in turn on one GPU."""
    for folder in "ab":
        assert [item["outcome"] for item in run.of(f"{folder}/same_triton.py")] == ["passed"] * 4


def test_nothing_is_left_after_a_run(run: Run) -> None:
    assert run.left == []
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        assert run.memory <= 32 * MIB


def test_a_path_of_other_letters_and_spaces_is_run_by_its_node_id(serial: Run) -> None:
    """CMP-11, CMP-13."""
    (item,) = serial.of("ядро.cu::correctness[n1000]")
    assert item["outcome"] == "passed"
    assert "Radix Sort (cub)" in item["kernel"]


def test_the_device_decides_whatever_the_shell_says_of_the_interpreter(serial: Run) -> None:
    """TRI-11."""
    assert {item["correctness"]["mode"] for item in serial.items.values() if "correctness" in item} == {"device"}
    (item,) = serial.of("race_triton.py")
    assert item["outcome"] == "failed"
    assert item["correctness"]["kind"] == "wrong values"


def test_an_item_in_a_process_forked_off_pytest_has_its_result(serial: Run) -> None:
    """PYT-17."""
    (item,) = serial.of("forked.cu")
    assert item["outcome"] == "passed", item


def test_a_callable_of_the_tests_own_process_is_timed(serial: Run) -> None:
    (item,) = serial.of("test_own.py")
    assert item["outcome"] == "passed", item


@dataclass
class Stopped:
    """A pytest whose kernel hangs, to be stopped."""

    process: subprocess.Popen[bytes]
    token: str
    hangs: Path
    log: Path
    memory: int


@pytest.fixture(scope="module")
def hanging(
    workshop: Workshop, tmp_path_factory: pytest.TempPathFactory, plugin_path: list[str]
) -> Iterator[dict[signal.Signals, Stopped]]:
    """Two of them, side by side: each has a cache of its own, and so its own turns on the GPU."""
    memory = workshop.used_memory()
    found = {}
    for number in (signal.SIGINT, signal.SIGKILL):
        folder = tmp_path_factory.mktemp(number.name)
        write(folder / "pytest.ini", "[pytest]\n")
        write(folder / "hang.cu", HANG)
        write(folder / "hang_ref.py", REF.format(cases='{"n": 1000}', factor=2))
        token = uuid.uuid4().hex
        known = {"KOPT_CACHE_DIR": str(folder / "cache"), "KOPT_TEST_TOKEN": token, "KOPT_TEST_HANGS": str(folder / "hangs")}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-q", "hang.cu", "-k", "correctness", "--kopt-timeout=120"],
                cwd=folder, env=environ(plugin_path, **known), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        found[number] = Stopped(process, token, folder / "hangs", folder / "log", memory)
    yield found
    for stopped in found.values():
        stopped.process.kill()
        stopped.process.wait()
        for pid in processes_with(stopped.token):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 2), (signal.SIGKILL, -9)], ids=["Ctrl-C", "kill"])
def test_a_run_that_is_stopped_while_a_kernel_hangs_leaves_nothing(
    workshop: Workshop, hanging: dict[signal.Signals, Stopped], number: signal.Signals, status: int
) -> None:
    stopped = hanging[number]
    assert eventually(lambda: stopped.hangs.exists() or stopped.process.poll() is not None, 60), stopped.log.read_text()
    assert stopped.process.poll() is None, stopped.log.read_text()
    assert processes_with(stopped.token), "the kernel's process is among them"
    stopped.process.send_signal(number)
    assert stopped.process.wait(30) == status, stopped.log.read_text()
    assert eventually(lambda: not processes_with(stopped.token), 20), processes_with(stopped.token)


def test_the_memory_of_stopped_runs_is_free_again(workshop: Workshop, hanging: dict[signal.Signals, Stopped]) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER"):
        pytest.skip("other workers use the same GPU's memory")
    for number, stopped in hanging.items():
        if stopped.process.poll() is None:
            pytest.skip(f"the run for {number.name} was not stopped")
    before = next(iter(hanging.values())).memory
    assert eventually(lambda: workshop.used_memory() <= before + 32 * MIB, 20), (workshop.used_memory() - before) / MIB
