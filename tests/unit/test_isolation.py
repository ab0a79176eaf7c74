"""Children of the fork server, and what hostile kernels can do to them and not to anything else."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import child_functions
import psutil
import pytest
from evaluating import ZOO, Kernels, kernels, started_with

from pytest_kernelopt.core.errors import KernelError, Unavailable
from pytest_kernelopt.core.isolate import runner
from pytest_kernelopt.core.isolate.runner import Child, ChildFailure, Servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    found = Servers(tmp_path_factory.mktemp("children"), gpu=None)
    yield found
    found.close()
    assert not started_with(found.scratch)


@pytest.fixture
def child(servers: Servers) -> Iterator[Child]:
    found = servers.start("interpreter", untrusted=True)
    yield found
    found.close()


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    with kernels(tmp_path_factory.mktemp("cache"), timeout=10.0) as found:
        assert found.zoo("right").verdict == "passed"
        yield found


def wait_until(true: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


# --- a child -----------------------------------------------------------------------------------------------------------------


def test_a_child_has_nothing_of_the_server_but_its_imports(child: Child, servers: Servers) -> None:
    about = child.call(child_functions.about, timeout=10)
    assert about["imported"] == ["torch", "triton"]
    assert about["pid"] == about["session"] == child.pid
    assert Path(about["folder"]) == child.folder == Path(about["temporary"])
    assert [place.split(":")[0] for place in about["fds"]] == [
        "/dev/null", *[f"{child.folder}/.output (deleted)"] * 2, "socket",
    ]  # fmt: skip
    assert about["signals"]["SIGTERM"] == about["signals"]["SIGCHLD"] == str(signal.SIG_DFL)
    assert about["blocked"] == []
    assert (about["interpret"], about["cuda"]) == ("1", "")


def test_each_mode_has_a_server_of_its_own(child: Child, servers: Servers) -> None:
    other = servers.start("aot", untrusted=True)
    about = other.call(child_functions.about, timeout=10)
    assert about["interpret"] is None
    assert about["parent"] != child.call(child_functions.about, timeout=10)["parent"]
    other.close()


def test_a_child_is_started_in_a_tenth_of_a_second(servers: Servers) -> None:
    start = time.monotonic()
    for _ in range(5):
        child = servers.start("interpreter", untrusted=True)
        child.call(child_functions.echo, timeout=10)
        child.close()
    assert (time.monotonic() - start) / 5 < 0.5


def test_errors_travel_as_what_they_are(child: Child) -> None:
    with pytest.raises(KernelError, match=r"^mend it$"):
        child.call(child_functions.raise_kernel_error, timeout=10)
    with pytest.raises(Unavailable, match=r"^no such thing here$"):
        child.call(child_functions.raise_unavailable, timeout=10)
    child.trusted = False
    with pytest.raises(ChildFailure, match=r"^no such thing here$") as caught:
        child.call(child_functions.raise_unavailable, timeout=10)
    assert (caught.value.kind, caught.value.type) == ("raised", "Unavailable")
    assert caught.value.where.startswith("child_functions.py:")
    assert child.alive


def test_a_message_without_end_is_cut(child: Child) -> None:
    with pytest.raises(ChildFailure) as caught:
        child.call(child_functions.raise_novel, timeout=60)
    assert caught.value.kind == "raised"
    assert len(str(caught.value)) < 100_000
    assert len(caught.value.sentence()) < 1000


@pytest.mark.parametrize("function", [child_functions.raise_unspeakable, child_functions.return_unspeakable])
def test_what_cannot_be_sent_costs_one_call(child: Child, function: Callable[..., object]) -> None:
    with pytest.raises(ChildFailure):
        child.call(function, timeout=10)


def test_descriptors_do_not_leak_on_either_side(child: Child) -> None:
    trusted_before = len(os.listdir("/proc/self/fd"))
    before = child.call(child_functions.count_fds, timeout=10)
    for _ in range(5):
        with pytest.raises(ChildFailure):
            child.call(child_functions.give_fds, timeout=10, fds=[0, 0], fail=True)
        child.call(child_functions.give_fds, timeout=10, fds=[0, 0], fail=False)
    assert child.call(child_functions.count_fds, timeout=10) == before
    assert len(os.listdir("/proc/self/fd")) == trusted_before


def test_descriptors_come_from_a_trusted_child_only(child: Child, servers: Servers) -> None:
    assert child.call_with_fds(child_functions.give_fds, timeout=10, fail=False) == ("here", [])
    trusted = servers.start("interpreter", untrusted=False)
    result, fds = trusted.call_with_fds(child_functions.give_fds, timeout=10, fail=False)
    assert (result, len(fds)) == ("here", 5)
    runner.close_fds(fds)
    trusted.close()


def test_output_is_that_of_the_last_call(child: Child) -> None:
    child.call(child_functions.say, timeout=10, text="one")
    child.call(child_functions.say, timeout=10, text="two")
    assert child.output() == "two\n"


def test_one_file_of_an_untrusted_child_is_bounded(child: Child) -> None:
    with pytest.raises(ChildFailure, match="File too large"):
        child.call(child_functions.write_file, timeout=30, megabytes=300)


def test_its_folder_goes_with_a_child(servers: Servers) -> None:
    child = servers.start("interpreter", untrusted=True)
    child.call(child_functions.write_file, timeout=10, megabytes=1)
    assert (child.folder / "large").exists()
    child.close()
    assert not child.folder.exists()
    child.close()
    assert not child.alive
    with pytest.raises(ChildFailure, match="has ended"):
        child.call(child_functions.echo, timeout=10)


def test_a_call_that_takes_too_long_ends_the_child(child: Child) -> None:
    with pytest.raises(ChildFailure, match=r"did not finish within 0.2 s and was killed") as caught:
        child.call(child_functions.sleep, timeout=0.2, seconds=60)
    assert caught.value.kind == "hung"
    assert not psutil.pid_exists(child.pid)


def test_a_child_that_died_or_spoke_between_calls_is_known_not_to_be_there(servers: Servers) -> None:
    for function in (child_functions.end_later, child_functions.speak_unasked):
        child = servers.start("interpreter", untrusted=True)
        child.call(function, timeout=10)
        wait_until(lambda: not child.alive)  # noqa: B023
        with pytest.raises(ChildFailure):
            child.call(child_functions.echo, timeout=10)
        child.close()


def test_an_interrupt_in_a_call_leaves_no_child_and_a_server_that_works(servers: Servers) -> None:
    child = servers.start("interpreter", untrusted=True)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        child.call(child_functions.sleep, timeout=60, seconds=60)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert not child.alive
    assert not psutil.pid_exists(child.pid)
    again = servers.start("interpreter", untrusted=True)
    assert again.call(child_functions.echo, timeout=10, a=1) == {"a": 1}
    again.close()


def test_what_a_child_started_is_gone_when_it_is_closed(servers: Servers) -> None:
    child = servers.start("interpreter", untrusted=True)
    pids = child.call(child_functions.start_family, timeout=10, count=5)
    assert all(psutil.pid_exists(pid) for pid in pids)
    child.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not [p for p in started_with(servers.scratch) if p.name() == "sleep"]


# --- the server ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_killed_from_outside_costs_its_children_and_is_replaced(tmp_path: Path, number: int) -> None:
    servers = Servers(tmp_path / "scratch", gpu=None)
    child = servers.start("interpreter", untrusted=True)
    pids = child.call(child_functions.start_family, timeout=10, count=2)
    server = psutil.Process(child.pid).parent()
    assert server is not None
    server.send_signal(number)
    with pytest.raises(ChildFailure, match="was killed with the process that started it") as caught:
        child.call(child_functions.sleep, timeout=60, seconds=60)
    assert caught.value.kind == "crashed"
    again = servers.start("interpreter", untrusted=True)
    assert again.call(child_functions.echo, timeout=10, a=1) == {"a": 1}
    wait_until(lambda: not any(lives(pid) for pid in [child.pid, *pids]))
    servers.close()
    again.close()
    assert not started_with(tmp_path)


def test_a_server_that_does_not_start_says_why_and_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise SystemError('this torch is broken')")
    monkeypatch.syspath_prepend(tmp_path)
    servers = Servers(tmp_path / "scratch", gpu=None)
    for _ in range(2):
        with pytest.raises(Unavailable, match="did not start: SystemError: this torch is broken"):
            servers.start("interpreter", untrusted=True)
    (tmp_path / "torch.py").write_text("raise ImportError('libc10.so: no such file')")
    other = Servers(tmp_path / "other", gpu=None)
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"torch cannot be imported: libc10\.so"):
            other.start("interpreter", untrusted=True)
    servers.close()
    other.close()


def test_a_module_in_the_folder_of_the_run_does_not_take_the_place_of_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemError('the wrong numpy')")
    monkeypatch.chdir(tmp_path)
    servers = Servers(tmp_path / "scratch", gpu=None)
    child = servers.start("interpreter", untrusted=True)
    try:
        assert child.call(child_functions.file_of, timeout=10, name="numpy") != str(tmp_path / "numpy.py")
    finally:
        child.close()
        servers.close()


def test_a_server_that_a_kernel_stopped_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_kernelopt.core.isolate.handle.KILL_SECONDS", 0.5)
    servers = Servers(tmp_path / "scratch", gpu=None)
    child = servers.start("interpreter", untrusted=True)
    os.kill(psutil.Process(child.pid).ppid(), signal.SIGSTOP)
    child.close()
    again = servers.start("interpreter", untrusted=True)
    assert psutil.Process(again.pid).is_running()
    again.close()
    servers.close()


# --- hostile kernels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("null", "crashed", "it crashed with signal 11 (SIGSEGV)"),
        ("abort", "crashed", "it crashed with signal 6 (SIGABRT)\n  about to abort"),
        ("exits", "exited", "it ended itself with exit status 0"),
        ("sysexit", "raised", "sysexit_triton.py:5: SystemExit: 0"),
        ("interrupts", "raised", "interrupts_triton.py:2: KeyboardInterrupt"),
        ("overflows", None, ""),  # a crash, or a RecursionError where Python guards its C stack
        ("prints_for_ever", "raised", "prints_for_ever_triton.py:6: OSError: [Errno 27] File too large"),
        ("writes_garbage", "garbled", "it broke off the conversation with pytest"),
        ("closes_descriptors", "exited", "it lost its connection to pytest"),
        ("hangs_up", "exited", "it closed its connection to pytest and was killed"),
        ("daemon_and_exits", "exited", "it ended itself with exit status 3"),
        ("devours_memory", "raised", "devours_memory_triton.py:11: "),
        ("forges", "garbled", "a reply that no call gives"),
        ("claims_unavailable", "raised", "claims_unavailable_triton.py:5: Unavailable: no GPU"),
        ("kills_its_server", "crashed", "it was killed with the process that started it"),
    ],
)
def test_a_hostile_kernel_fails_with_the_reason_and_harms_nothing_else(
    zoo: Kernels, name: str, kind: str | None, words: str
) -> None:
    record = zoo.zoo(name)
    assert record.verdict == "failed"
    assert record.kind in ("crashed", "raised") if kind is None else record.kind == kind
    assert words in (record.message or "")
    assert len(zoo.processes()) <= 2, "the server and the referee"
    assert zoo.zoo("right").verdict == "passed"


@pytest.mark.parametrize("name", ["wanders", "daemon", "prints", "shrinks_memory"])
def test_what_a_right_kernel_does_beside_its_work_harms_nothing(zoo: Kernels, name: str) -> None:
    cwd, environment = os.getcwd(), dict(os.environ)
    assert zoo.zoo(name).verdict == "passed"
    assert zoo.zoo("right").verdict == "passed"
    assert len(zoo.processes()) == 3, "the server, the referee and the candidate"
    assert (os.getcwd(), dict(os.environ)) == (cwd, environment)
    used = sum(file.stat().st_size for file in zoo.cache.rglob("*") if file.is_file())
    assert used < 50 << 20


def test_a_kernel_that_hangs_and_takes_no_signals_is_killed(tmp_path: Path, zoo: Kernels) -> None:
    with kernels(tmp_path, timeout=1.0) as impatient:
        assert impatient.zoo("right").verdict == "passed"
        start = time.monotonic()
        record = impatient.zoo("hangs")
        assert (record.verdict, record.kind) == ("failed", "hung")
        assert "it did not finish within 1 s and was killed" in (record.message or "")
        assert time.monotonic() - start < 10
        assert impatient.zoo("right").verdict == "passed"


# --- pytest itself ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def start_pytest(
    clean_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """pytest on a kernel of the zoo, in a process of its own, with its caches in ``tmp_path``."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path / "cache"))
    started = []

    def start(*args: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--rootdir", str(ZOO)]
        command += [f"--benchmark-storage=file://{tmp_path}"]
        process = subprocess.Popen(
            [*command, "-c", os.devnull, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ZOO
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
    wait_until(lambda: not started_with(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_pytest_that_is_ended_while_a_kernel_hangs(
    start_pytest: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: int
) -> None:
    process = start_pytest("hangs_triton.py::correctness")
    wait_until(lambda: list(tmp_path.rglob("hanging")), 60)
    process.send_signal(number)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == (2 if number == signal.SIGINT else -number), output
    wait_until(lambda: not started_with(tmp_path))
    wait_until(lambda: not list(tmp_path.glob("cache/sessions/*/*/")))
    assert ("KeyboardInterrupt" in output) == (number == signal.SIGINT)


def test_two_pytests_at_once_do_not_meet(start_pytest: Callable[..., subprocess.Popen[str]]) -> None:
    processes = [start_pytest("right_triton.py", "null_triton.py::correctness", "-q") for _ in range(2)]
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 1, output
        assert "2 passed" in output, output
        assert "1 failed" in output, output


def test_a_fork_of_pytest_does_not_end_what_pytest_has(zoo: Kernels) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if (pid := os.fork()) == 0:
            try:
                zoo.evaluator.close()
                theirs.send(b"closed")
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        ours.settimeout(10)
        assert ours.recv(10) == b"closed"
    assert zoo.zoo("right").verdict == "passed"
