"""What an evaluator keeps, and when it asks anew; results as they are; what it says without a GPU."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from evaluating import TWICE, ZOO, Kernels, kernels, started_with

from pytest_kernelopt.core import version
from pytest_kernelopt.core.errors import BuildError, KernelError, Unavailable
from pytest_kernelopt.core.evaluate import Evaluator, EvaluatorSettings
from pytest_kernelopt.core.spec import load
from pytest_kernelopt.core.spec.model import Case

RIGHT = "def run_kernel(x, y):\n    y.copy_(2 * x)\n"
WRONG = "def run_kernel(x, y):\n    y.copy_(3 * x)\n"
TRITON = """
import torch
import triton
import triton.language as tl
import constants
FACTOR = tl.constexpr(2)

@triton.jit
def times(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, FACTOR * tl.load(x + i, mask=i < n), mask=i < n)

def run_kernel(x, y):
    times[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    with kernels(tmp_path_factory.mktemp("cache")) as found:
        yield found


# --- versions -----------------------------------------------------------------------------------------------------------------


def test_an_answer_is_kept_until_something_that_it_rests_on_changes(asked: Kernels, tmp_path: Path) -> None:
    evaluator = asked.evaluator
    spec = asked.write(tmp_path, RIGHT)
    case = spec.cases[0]
    record = evaluator.verify(spec, case)
    assert evaluator.verify(load(spec.path), case) is record
    spec.path.write_text(WRONG)
    assert evaluator.verify(spec, case).verdict == "failed"
    assert spec.reference is not None
    spec.reference.path.write_text(spec.reference.path.read_text().replace("2 * x", "3 * x"))
    assert evaluator.verify(spec, case).verdict == "passed"
    spec.path.write_text(RIGHT)
    assert evaluator.verify(spec, case).verdict == "failed"


def test_a_helper_is_part_of_the_version_of_who_imports_it(asked: Kernels, tmp_path: Path) -> None:
    helper, package = tmp_path / "helper.py", tmp_path / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    inner = package / "inner.py"
    inner.write_text("A = 1\n")
    helper.write_text("from parts.inner import A\nFACTOR = A + 1\n")
    spec = asked.write(tmp_path, "import helper\n" + RIGHT.replace("2 *", "helper.FACTOR *"))
    versions = [version.of_kernel(spec)]
    assert asked.evaluator.verify(spec, spec.cases[0]).verdict == "passed"
    inner.write_text("A = 2\n")
    versions.append(version.of_kernel(spec))
    assert asked.evaluator.verify(spec, spec.cases[0]).verdict == "failed"
    (tmp_path / "other.py").write_text("FACTOR = 3\n")
    versions.append(version.of_kernel(spec))
    assert versions[0] != versions[1] == versions[2]


def test_a_header_is_part_of_the_version_of_who_includes_it(tmp_path: Path) -> None:
    kernel, header = tmp_path / "k.cu", tmp_path / "k.h"
    kernel.write_text('#include "k.h"\nextern "C" void solve(float* y, int n) {}\n')
    header.write_text("#define A 1\n")
    spec = load(kernel)
    before = version.of_kernel(spec)
    assert version.of_kernel(load(kernel)) == before
    header.write_text("#define A 2\n")
    assert version.of_kernel(spec) != before


def test_a_changed_constant_is_used_in_the_same_session(asked: Kernels, tmp_path: Path) -> None:
    (tmp_path / "constants.py").write_text("")
    spec = asked.write(tmp_path, TRITON)
    assert asked.evaluator.verify(spec, spec.cases[0]).verdict == "passed"
    candidate = asked.evaluator.stage._candidate
    assert candidate is not None
    spec.path.write_text(TRITON.replace("constexpr(2)", "constexpr(3)"))
    assert asked.evaluator.verify(spec, spec.cases[0]).verdict == "failed"
    assert not candidate.alive, "a version is a process of its own"
    spec.path.write_text(TRITON)
    assert asked.evaluator.verify(spec, spec.cases[0]).verdict == "passed"


def test_each_version_has_a_triton_cache_of_its_own(asked: Kernels, tmp_path: Path) -> None:
    told = "import os\ndef run_kernel(x, y):\n    print(os.environ['TRITON_CACHE_DIR'])\n    os._exit(0)\n"
    folders = set()
    for text in (told, told + "# another\n", told):
        spec = asked.write(tmp_path, text)
        folders.add((asked.evaluator.verify(spec, spec.cases[0]).message or "").splitlines()[-1])
    assert len(folders) == 2
    assert all(str(asked.cache) in folder for folder in folders)


def test_a_kernel_that_is_gone_is_told(asked: Kernels, tmp_path: Path) -> None:
    spec = asked.write(tmp_path, RIGHT)
    spec.path.unlink()
    with pytest.raises(KernelError, match=r"op_triton\.py can't be read: No such file"):
        asked.evaluator.verify(spec, spec.cases[0])


def test_a_refusal_is_kept_too_and_forgotten_on_demand(asked: Kernels, tmp_path: Path) -> None:
    reference = TWICE.replace("return", f"open({str(tmp_path / 'log')!r}, 'a').write('1'); return undefined +")
    spec = asked.write(tmp_path / "k", RIGHT, reference)
    for _ in range(3):
        with pytest.raises(KernelError, match="undefined"):
            asked.evaluator.verify(spec, spec.cases[0])
    once = len((tmp_path / "log").read_text())
    asked.evaluator.forget(spec.path)
    with pytest.raises(KernelError, match="undefined"):
        asked.evaluator.verify(spec, spec.cases[0])
    assert len((tmp_path / "log").read_text()) == 2 * once


# --- one process a version ----------------------------------------------------------------------------------------------------


def test_a_right_kernel_keeps_its_process_for_its_other_cases_and_a_wrong_one_does_not(asked: Kernels, tmp_path: Path) -> None:
    spec = asked.write(tmp_path / "right", RIGHT, TWICE.replace("[{", '[{"n": 7}, {'))
    stage = asked.evaluator.stage
    candidates = []
    for case in spec.cases:
        assert asked.evaluator.verify(spec, case).verdict == "passed"
        candidates.append(stage._candidate)
    assert candidates[0] is candidates[1] is not None
    asked.ask(asked.write(tmp_path / "wrong", WRONG))
    assert stage._candidate is None
    assert not candidates[0].alive


def test_an_interrupt_leaves_an_evaluator_that_can_go_on(asked: Kernels, tmp_path: Path) -> None:
    slow = asked.write(tmp_path / "slow", "import time\ndef run_kernel(x, y):\n    time.sleep(60)\n")
    right = asked.write(tmp_path / "right", RIGHT)
    assert asked.ask(right).verdict == "passed"
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        for after in (0.02, 0.3):  # while it is started, and in the call
            signal.setitimer(signal.ITIMER_REAL, after)
            with pytest.raises(KeyboardInterrupt):
                asked.evaluator.verify(slow, slow.cases[0])
            assert asked.ask(right).verdict == "passed"
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_closing_is_safe_at_any_time(tmp_path: Path) -> None:
    never = Evaluator(EvaluatorSettings(cache_dir=tmp_path))
    never.close()
    never.close()
    found = Kernels(tmp_path)
    assert found.zoo("right").verdict == "passed"
    for process in found.processes():
        process.kill()
    found.evaluator.close()
    found.evaluator.close()
    assert not started_with(tmp_path)
    assert found.zoo("right").verdict == "passed", "and it can be used again"
    found.evaluator.close()
    assert not started_with(tmp_path)
    assert not list(tmp_path.glob("sessions/*/*/"))


# --- without a GPU ------------------------------------------------------------------------------------------------------------


def test_without_a_gpu_nothing_is_run_only_to_say_that_it_cannot_be_timed(asked: Kernels, tmp_path: Path) -> None:
    spec = asked.write(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n" + RIGHT)
    for ask in (
        asked.evaluator.require_gpu,
        lambda: asked.evaluator.time(spec, spec.cases[0]),
        lambda: asked.evaluator.time_callable(lambda: None),
    ):
        with pytest.raises(Unavailable, match="nothing can be timed here: "):
            ask()
    assert not (tmp_path / "ran").exists()


def test_a_cuda_kernel_is_only_compiled_and_its_reference_can_still_be_asked(asked: Kernels, tmp_path: Path) -> None:
    kernel = asked.write(tmp_path, RIGHT).path.with_name("op.cu")
    kernel.write_text('extern "C" void solve(const float* x, float* y, int n) {}\n')
    spec = load(kernel)
    record = asked.evaluator.verify(spec, spec.cases[0])
    assert record.verdict == "unavailable"
    assert "it can only be compiled here" in (record.message or "")
    with pytest.raises(Unavailable, match="it can only be compiled here"):
        asked.evaluator.run(spec, spec.cases[0])
    assert list(asked.evaluator.expected(spec, spec.cases[0])) == ["y"]


# --- results ------------------------------------------------------------------------------------------------------------------


def test_results_are_cpu_tensors_by_name_on_the_same_inputs(asked: Kernels, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    spec = asked.write(tmp_path, RIGHT)
    case = Case((("n", 77),))
    for _ in range(3):
        got, want = asked.evaluator.run(spec, case), asked.evaluator.expected(spec, case)
        assert list(got) == list(want) == ["y"]
        assert got["y"].shape == (77,)
        torch.testing.assert_close(got, want)
    asked.evaluator.stage.drop_candidate()
    assert len(os.listdir("/proc/self/fd")) <= before + 2, "the server's and the referee's"


def test_the_reference_does_not_need_a_kernel_that_works(asked: Kernels, tmp_path: Path) -> None:
    spec = asked.write(tmp_path, "raise ValueError\ndef run_kernel(x, y):\n    pass\n")
    assert asked.evaluator.expected(spec, spec.cases[0])["y"].shape == (300,)
    with pytest.raises(KernelError, match=r"the process of op_triton\.py: op_triton\.py:1: ValueError"):
        asked.evaluator.run(spec, spec.cases[0])
    alone = asked.write(tmp_path / "alone", RIGHT, None)
    with pytest.raises(Unavailable, match="no reference"):
        asked.evaluator.expected(alone, alone.cases[0])


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("def run_kernel(x, y):\n    raise ValueError('no')\n", r"op_triton\.py: raised: op_triton\.py:2: ValueError: no"),
        ("import os\ndef run_kernel(x, y):\n    os.abort()\n", r"op_triton\.py: crashed: it crashed with signal 6"),
    ],
)
def test_a_run_that_fails_says_how(asked: Kernels, tmp_path: Path, kernel: str, words: str) -> None:
    spec = asked.write(tmp_path, kernel)
    with pytest.raises(KernelError, match=words):
        asked.evaluator.run(spec, spec.cases[0])


# --- building -----------------------------------------------------------------------------------------------------------------


def test_a_triton_kernel_is_built_ahead_of_time_in_a_process_of_its_own(asked: Kernels, tmp_path: Path) -> None:
    (tmp_path / "constants.py").write_text("")
    spec = asked.write(tmp_path, TRITON)
    build = asked.evaluator.build(spec)
    assert [kernel.name for kernel in build.kernels] == ["times"]
    assert asked.evaluator.build(spec) is build
    with pytest.raises(BuildError, match="the process that compiled its launches: crashed with signal 6"):
        asked.evaluator.build(load(ZOO / "abort_triton.py"))
    with pytest.raises(BuildError, match="the process that compiled its launches: ended itself with exit status 0"):
        asked.evaluator.build(load(ZOO / "exits_triton.py"))
    assert asked.evaluator.verify(spec, spec.cases[0]).verdict == "passed"


def test_without_inputs_there_is_nothing_to_build_for(asked: Kernels, tmp_path: Path) -> None:
    spec = asked.write(tmp_path, RIGHT, None)
    with pytest.raises(Unavailable, match="no inputs to compile it for: no reference"):
        asked.evaluator.build(spec)
    assert asked.evaluator.verify(spec, spec.cases[0]).verdict == "unverified"
