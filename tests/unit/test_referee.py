"""References that are wrong themselves, and what the referee keeps from a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from evaluating import TWICE, Kernels, kernels

from pytest_kernelopt.core.errors import KernelError, Unavailable
from pytest_kernelopt.core.reference.problem import Problem, TensorSpec
from pytest_kernelopt.core.verify.referee import _require_memory

RIGHT = "def run_kernel(x, y):\n    y.copy_(2 * x)\n"
SIGNATURE = 'def reference(x: Float[Tensor, "30"]) -> Float[Tensor, "30"]:\n    '


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    with kernels(tmp_path_factory.mktemp("cache")) as found:
        yield found


def referee(asked: Kernels) -> psutil.Process:
    child = asked.evaluator.stage.judge._child
    assert child is not None
    return psutil.Process(child.pid)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('not today')", r"op_ref.py:6: reference\(\) raised ValueError: not today"),
        ("return x[:4]", r"op_ref.py:5: .*the shape \(4,\), and \(30,\) was declared"),
        ("return x, x", r"op_ref.py:5: .*2 tensors"),
        ("return x.add_(1)", r"op_ref.py:5: .*writes into its input 'x'"),
        ("return 7", r"op_ref.py:5: .*returned a int where a tensor is meant"),
        ("import sys; sys.exit(0)", r"op_ref.py:6: reference\(\) raised SystemExit"),
        ("import os; os._exit(0)", r"the reference's process: ended itself with exit status 0"),
        ("import os; os.abort()", r"the reference's process: crashed with signal 6 \(SIGABRT\)"),
        ("raise KeyboardInterrupt", r"the reference's process: op_ref.py:6: KeyboardInterrupt"),
    ],
)
def test_a_reference_that_fails_is_told_by_its_own_line_and_the_next_kernel_is_judged(
    asked: Kernels, tmp_path: Path, body: str, words: str
) -> None:
    with pytest.raises(KernelError, match=words):
        asked.ask(asked.write(tmp_path / "wrong", RIGHT, "import torch\n" + SIGNATURE + body + "\n"))
    assert asked.ask(asked.write(tmp_path / "right", RIGHT)).verdict == "passed"


@pytest.mark.parametrize("line", ["raise ValueError('at import')", "import os; os.abort()"])
def test_so_is_one_that_does_not_import(asked: Kernels, tmp_path: Path, line: str) -> None:
    with pytest.raises(KernelError, match=r"op_ref\.py:4: .*at import|the reference's process: crashed with signal 6"):
        asked.ask(asked.write(tmp_path / "wrong", RIGHT, line + "\n" + SIGNATURE + "return 2 * x\n"))
    assert asked.ask(asked.write(tmp_path / "right", RIGHT)).verdict == "passed"


def test_the_process_ends_with_an_error_that_spoils_its_context(asked: Kernels, tmp_path: Path) -> None:
    assert asked.ask(asked.write(tmp_path / "right", RIGHT)).verdict == "passed"
    before = referee(asked).pid
    with pytest.raises(KernelError, match="ordinary"):
        asked.ask(asked.write(tmp_path / "a", RIGHT, SIGNATURE + "raise RuntimeError('ordinary')\n"))
    assert referee(asked).pid == before
    sticky = "raise RuntimeError('CUDA error: an illegal memory access was encountered')\n"
    with pytest.raises(KernelError, match="illegal memory access"):
        asked.ask(asked.write(tmp_path / "b", RIGHT, SIGNATURE + sticky))
    assert asked.evaluator.stage.judge._child is None
    assert asked.ask(asked.write(tmp_path / "right", RIGHT)).verdict == "passed"
    assert referee(asked).pid != before


def test_a_referee_that_was_killed_between_two_questions_is_replaced_without_a_word(asked: Kernels, tmp_path: Path) -> None:
    spec = asked.write(tmp_path, RIGHT)
    assert asked.ask(spec).verdict == "passed"
    killed = referee(asked)
    killed.kill()
    killed.wait(5)
    assert asked.ask(spec).verdict == "passed"


def test_a_case_that_no_memory_is_large_enough_for_is_unavailable(asked: Kernels, tmp_path: Path) -> None:
    reference = TWICE.replace("300", "2**60")
    with pytest.raises(Unavailable, match="memory"):
        asked.ask(asked.write(tmp_path, RIGHT, reference))


def test_the_inputs_are_the_referees_where_a_reference_gives_them(asked: Kernels, tmp_path: Path) -> None:
    cheating = """
        import torch
        answer = {}
        def setup(*, n, seed=None):
            x = torch.zeros(n)
            answer["y"] = 2 * x
            return {"inputs": {"x": x, "y": 2 * x}, "outputs": ["y"]}
        def run_kernel(**inputs):
            inputs["y"].copy_(answer["y"])
    """
    record = asked.ask(asked.write(tmp_path / "cheating", cheating))
    assert (record.verdict, record.kind) == ("failed", "wrong values")
    honest = cheating.replace('answer["y"])', '2 * inputs["x"])')
    assert asked.ask(asked.write(tmp_path / "honest", honest)).verdict == "passed"
    lazy = cheating.replace('inputs["y"].copy_(answer["y"])', "pass")
    assert asked.ask(asked.write(tmp_path / "lazy", lazy)).kind == "never written"


def test_a_setup_without_a_reference_is_run_and_unverified(asked: Kernels, tmp_path: Path) -> None:
    kernel = """
        import torch
        def setup(*, seed=None):
            return {"inputs": {"x": torch.arange(5.0), "y": torch.zeros(5), "k": 3}, "outputs": ["y"]}
        def run_kernel(x, y, k):
            assert x.tolist() == [0, 1, 2, 3, 4] and k == 3
            y.copy_(k * x)
    """
    spec = asked.write(tmp_path, kernel, None)
    record = asked.ask(spec)
    assert record.verdict == "unverified", record.message
    assert "no reference: looked for op_triton_ref.py, op_ref.py" in (record.message or "")
    assert asked.evaluator.run(spec, spec.cases[0])["y"].tolist() == [0, 3, 6, 9, 12]
    silent = asked.write(tmp_path / "silent", kernel.replace("y.copy_(k * x)", "pass"), None)
    assert asked.ask(silent).kind == "never written"


def test_a_reference_that_computes_with_its_siblings_and_writes_nothing_beside_it(asked: Kernels, tmp_path: Path) -> None:
    (tmp_path / "operators.py").write_text("def double(x):\n    return 2 * x\n")
    reference = "import operators\n" + TWICE.replace("2 * x", "operators.double(x)")
    assert asked.ask(asked.write(tmp_path, RIGHT, reference)).verdict == "passed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["op_ref.py", "op_triton.py", "operators.py"]


def test_what_make_inputs_gives_is_what_the_kernel_gets(asked: Kernels, tmp_path: Path) -> None:
    reference = """
        import torch
        cases = [{"n": 64}]
        def make_inputs(*, seed, device, n):
            return {"order": torch.arange(n, device=device, dtype=torch.int32).flip(0)}
        def reference(order: Int32[Tensor, "n"]) -> Int32[Tensor, "n"]:
            return order + 1
    """
    kernel = "def run_kernel(order, y):\n    assert order.tolist() == list(range(63, -1, -1))\n    y.copy_(order + 1)\n"
    assert asked.ask(asked.write(tmp_path, kernel, reference)).verdict == "passed"


def test_a_case_that_memory_cannot_hold_is_unavailable_before_anything_is_taken() -> None:
    """Linux grants more than there is, and then kills some process on the machine, not always the one that asked."""
    huge = Problem(tensors=(TensorSpec("x", "float32", (1 << 20, 1 << 20), "input"),), arguments=())
    with pytest.raises(Unavailable, match=r"takes about 24576\.0 GiB of memory, and .* GiB are available"):
        _require_memory(huge, 1)
    _require_memory(Problem(tensors=(TensorSpec("x", "float32", (8,), "input"),), arguments=()), 3)
