"""Right and wrong kernels in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from evaluating import TWICE, ZOO, Kernels, kernels

from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.isolate import replies
from pytest_kernelopt.core.isolate.runner import ChildFailure
from pytest_kernelopt.core.spec import load
from pytest_kernelopt.core.verify import check

TRITON = "import torch\nimport triton\nimport triton.language as tl\n"
TWO = (
    "import torch\ncases = [{'n': 30}]\n"
    'def reference(x: Float[Tensor, "n"]) -> tuple[Float[Tensor, "n"], Float[Tensor, ""]]:\n    return 2 * x, x.sum()\n'
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    with kernels(tmp_path_factory.mktemp("cache")) as found:
        yield found


def test_a_right_kernel_passes_at_every_seed(asked: Kernels) -> None:
    record = asked.zoo("right")
    assert (record.verdict, record.mode, record.seeds) == ("passed", "interpreter", (0, 1, 2))
    assert record.message is None
    assert record.tolerance
    assert [(output.name, output.elements, output.wrong) for output in record.outputs] == [("y", 300, 0)]


def test_wrong_values_are_shown_in_a_few_lines(asked: Kernels) -> None:
    record = asked.zoo("wrong_tail")
    assert (record.verdict, record.kind, record.failing_seed) == ("failed", "wrong values", 0)
    lines = (record.message or "").splitlines()
    assert lines[0] == "wrong_tail_triton.py differs from wrong_tail_ref.py at default, seed 0"
    assert lines[1] == "  output 'y' (float32 [300]): 44 of 300 elements wrong"
    assert lines[2].startswith("  worst absolute error 1, relative ")
    assert lines[3].startswith("  first wrong: [256]: got ")
    assert ", want " in lines[3]
    assert lines[4] == "  all errors are in the last 44 elements"
    assert lines[-2] == "  ######################"
    assert lines[-1].startswith("  allowed: |error| <= ")
    assert len(lines) < 15


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("never_writes", "never written", "output 'y' was never written (300 of 300 elements)"),
        ("partly_writes", "partly written", "44 of 300 elements of output 'y' were never written"),
        ("writes_past_the_end", "out of bounds write", "wrote 336 bytes past the end of 'y'"),
        ("changes_its_input", "changed its input", "changed its input 'x' (4 bytes differ)"),
        ("accumulates", "accumulates into its output", "what stood there before the call shows in 300 of 300 elements"),
        ("reads_past_the_end", "wrong values", "44 elements are NaN where the reference is not"),
        ("raises", "raised", "raises_triton.py:2: IndexError: list index out of range"),
        ("raises_inside", "raised", "raises_inside_triton.py:8: AttributeError: 'tensor' object has no attribute 'nonsense'"),
        ("patches", "wrong values", "300 of 300 elements wrong"),
        ("does_not_import", "does not load", "does_not_import_triton.py:1: ModuleNotFoundError"),
    ],
)
def test_a_wrong_kernel_is_told_what_it_does(asked: Kernels, name: str, kind: str, words: str) -> None:
    record = asked.zoo(name)
    assert (record.verdict, record.kind, record.failing_seed) == ("failed", kind, None if kind == "does not load" else 0)
    assert words in (record.message or "")
    assert f"{name}_triton.py" in (record.message or "").splitlines()[0]


def test_an_answer_kept_from_another_input_is_wrong_at_the_next_seed(asked: Kernels) -> None:
    record = asked.zoo("keeps_an_answer")
    assert (record.verdict, record.kind, record.failing_seed) == ("failed", "wrong values", 1)


@pytest.mark.parametrize(
    ("returned", "verdict", "words"),
    [
        ("2 * x", "passed", None),
        ("{'y': 2 * x}", "passed", None),
        ("(2 * x).requires_grad_()", "passed", None),
        ("(2 * x).double()", "failed", "returned output 'y' has the dtype float64, not float32"),
        ("2 * x[:4]", "failed", "returned output 'y' has the shape [4], not [30]"),
        ("(2 * x)[:, None]", "failed", "returned output 'y' has the shape [30, 1], not [30]"),
        ("torch.stack([2 * x, x], 1)[:, 0]", "failed", "returned output 'y' has the strides [2], not [1]"),
        ("(2 * x).to('meta')", "failed", "returned output 'y' has the device meta, not cpu"),
        ("(2 * x).to_sparse()", "failed", "returned output 'y' has the strides"),
        ("[2 * x]", "failed", "returned output 'y' is builtins.list, not torch.Tensor"),
        ("(2 * x).tolist()", "failed", "returned output 'y' is builtins.list, not torch.Tensor"),
        ("None", "failed", "returned output 'y' is builtins.NoneType, not torch.Tensor"),
        ("7", "failed", "returned output 'y' is builtins.int, not torch.Tensor"),
        ("torch.nn.Parameter(2 * x)", "failed", "returned output 'y' is torch.nn.parameter.Parameter, not torch.Tensor"),
        ("{'z': 2 * x}", "failed", "returned output 'y' is missing"),
        ("{'y': 2 * x, 'z': x}", "failed", "it returned 2, and 1 result is due: y"),
        ("{}", "failed", "it returned 0, and 1 result is due: y"),
        ("x", "failed", "op_triton.py differs from op_ref.py"),
        ("x.mul_(2)", "failed", "changed its input 'x'"),
    ],
)
def test_a_returned_result_is_taken_strictly(
    asked: Kernels, tmp_path: Path, returned: str, verdict: str, words: str | None
) -> None:
    reference = "cases = [{'n': 30}]\noutputs = ['y']\n" + TWICE.partition("\n")[2]
    record = asked.ask(asked.write(tmp_path, f"import torch\ndef run_kernel(x):\n    return {returned}\n", reference))
    assert record.verdict == verdict, record.message
    if words is not None:
        assert words in (record.message or "")
        assert "never written" not in (record.message or "")


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("2 * x, x.sum()", None),
        ("[2 * x, x.sum()]", None),
        ("2 * x", "what it returned is torch.Tensor, and 2 results are due"),
        ("2 * x, x.sum(), x", "it returned 3, and 2 results are due"),
        ("2 * x, x.sum()[None]", "has the shape [1], not []"),
        ("2 * x, float(x.sum())", "is builtins.float, not torch.Tensor"),
    ],
)
def test_several_results_are_taken_in_order(asked: Kernels, tmp_path: Path, returned: str, words: str | None) -> None:
    record = asked.ask(asked.write(tmp_path, f"def run_kernel(x):\n    return {returned}\n", TWO))
    assert record.verdict == ("passed" if words is None else "failed"), record.message
    assert (words or "") in (record.message or "")


def test_several_outputs_in_place_one_of_them_wrong(asked: Kernels, tmp_path: Path) -> None:
    kernel = "def run_kernel(x, y, total):\n    y.copy_(2 * x)\n    total.fill_(x.sum() + 1)\n"
    record = asked.ask(asked.write(tmp_path, kernel, TWO))
    assert record.verdict == "failed"
    assert [(output.name, output.shape, output.wrong) for output in record.outputs] == [("y", (30,), 0), ("total", (), 1)]
    assert "output 'total' (float32 []): 1 of 1 elements wrong" in (record.message or "")
    assert "output 'y'" not in (record.message or "")


@pytest.mark.parametrize("n", [1, 1000])
def test_integers_are_compared_exactly(asked: Kernels, tmp_path: Path, n: int) -> None:
    reference = f'cases = [{{"n": {n}}}]\ndef reference(x: Int32[Tensor, "n"]) -> Int32[Tensor, "n"]:\n    return x + 1\n'
    right = asked.write(tmp_path / "right", "def run_kernel(x, y):\n    y.copy_(x + 1)\n", reference)
    wrong = asked.write(tmp_path / "wrong", "def run_kernel(x, y):\n    y.copy_(x + 1)\n    y[-1] += 1\n", reference)
    assert asked.ask(right).verdict == "passed"
    record = asked.ask(wrong)
    assert (record.kind, record.outputs[0].wrong, record.outputs[0].first_wrong) == ("wrong values", 1, (n - 1,))


def test_inout_tensors_and_scalars(asked: Kernels, tmp_path: Path) -> None:
    reference = """
        cases = [{"n": 40, "alpha": 0.5, "flip": True}]
        inout = ["acc"]
        def reference(acc: Float[Tensor, "n"], x: Float[Tensor, "n"], alpha: float, flip: bool):
            acc.add_(x * (-alpha if flip else alpha))
    """
    right = "def run_kernel(acc, x, alpha, flip):\n    acc += x * (-alpha if flip else alpha)\n"
    assert asked.ask(asked.write(tmp_path / "a", right, reference)).verdict == "passed"
    record = asked.ask(asked.write(tmp_path / "b", right.replace("acc +=", "acc[:] ="), reference))
    assert (record.kind, record.outputs[0].name) == ("wrong values", "acc")


def test_empty_tensors_and_tensors_of_no_dimension(asked: Kernels, tmp_path: Path) -> None:
    reference = """
        cases = [{"n": 0}, {"n": 3}]
        def reference(x: Float[Tensor, "n"], s: Float[Tensor, ""]) -> Float[Tensor, "n"]:
            return x * s
    """
    kernel = "def run_kernel(x, s, y):\n    y.copy_(x * s)\n"
    assert asked.ask(asked.write(tmp_path, kernel, reference)).verdict == "passed"
    spec = asked.write(
        tmp_path / "returns",
        "def run_kernel(x, s):\n    return x * s\n",
        "outputs = ['y']" + reference.replace("\n        ", "\n"),
    )
    assert asked.ask(spec).verdict == "passed"


def test_autotuned_kernels_run_with_their_first_config(asked: Kernels, tmp_path: Path) -> None:
    kernel = f"""{TRITON}
@triton.autotune(configs=[triton.Config({{"BLOCK": b}}) for b in (64, 128, 256)], key=["n"], reset_to_zero=["y"])
@triton.heuristics({{"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}})
@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

def run_kernel(x, y):
    twice[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
"""
    record = asked.ask(asked.write(tmp_path, kernel))
    assert record.verdict == "passed", record.message


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("return libdevice.tanh(v)", "libdevice functions return nothing in Triton's interpreter"),
        (
            'return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [v], dtype=tl.float32, is_pure=True, pack=1)',
            "inline assembly",
        ),
        ("return v.to(tl.bfloat16).to(tl.float32)", "bf16 (tl.bfloat16 in the kernel) is silently wrong"),
    ],
)
def test_what_the_interpreter_cannot_do_is_unavailable_and_no_failure(
    asked: Kernels, tmp_path: Path, line: str, reason: str
) -> None:
    head = TRITON + ("from triton.language.extra import libdevice\n" if "libdevice" in line else "")
    kernel = f"""{head}
@triton.jit
def change(v):
    {line}

@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, change(tl.load(x + i, mask=i < n)), mask=i < n)

def run_kernel(x, y):
    twice[(1,)](x, y, 300, BLOCK=512)
"""
    record = asked.ask(asked.write(tmp_path, kernel))
    assert record.verdict == "unavailable", record.message
    assert reason in (record.message or "")


def test_bf16_tensors_are_refused_with_the_reason(asked: Kernels, tmp_path: Path) -> None:
    reference = 'def reference(x: BFloat16[Tensor, "8"]) -> BFloat16[Tensor, "8"]:\n    return 2 * x\n'
    record = asked.ask(asked.write(tmp_path, "def run_kernel(x, y):\n    y.copy_(2 * x)\n", reference))
    assert record.verdict == "unavailable"
    assert "bf16 ('x') is silently wrong in Triton's interpreter: this case needs a GPU" in (record.message or "")


def test_a_name_in_a_comment_or_a_string_refuses_nothing(asked: Kernels, tmp_path: Path) -> None:
    kernel = "# tl.bfloat16, libdevice\ndef run_kernel(x, y):\n    'no bfloat16 here'\n    y.copy_(2 * x)\n"
    assert asked.ask(asked.write(tmp_path, kernel)).verdict == "passed"


def test_a_user_who_says_that_it_is_not_supported_is_not_the_interpreter(asked: Kernels, tmp_path: Path) -> None:
    kernel = "def run_kernel(x, y):\n    raise NotImplementedError('inline_asm not supported here')\n"
    assert asked.ask(asked.write(tmp_path, kernel)).verdict == "failed"


@pytest.mark.parametrize(
    ("source", "at"), [("x = = 1\n", "helper.py:1: SyntaxError"), ("\n\n1 / 0\n", "helper.py:3: ZeroDivisionError")]
)
def test_an_error_in_a_module_that_a_kernel_imports_is_located_there(
    asked: Kernels, tmp_path: Path, source: str, at: str
) -> None:
    (tmp_path / "helper.py").write_text(source)
    record = asked.ask(asked.write(tmp_path, "import helper\ndef run_kernel(x, y):\n    pass\n"))
    assert (record.verdict, record.kind) == ("failed", "does not load")
    assert f"op_triton.py cannot be loaded: {at}" in (record.message or "")


def test_modules_beside_a_kernel_are_its_own_and_kernels_of_one_name_do_not_meet(asked: Kernels, tmp_path: Path) -> None:
    kernel = "import helper\n\ndef run_kernel(x, y):\n    y.copy_(helper.FACTOR * x)\n"
    specs = []
    for factor in (2, 3):
        folder = tmp_path / str(factor)
        specs.append(asked.write(folder, kernel, TWICE.replace("2 * x", f"{factor} * x"), name="softmax"))
        (folder / "helper.py").write_text(f"FACTOR = {factor}\n")
    for spec in (*specs, *specs):
        assert asked.ask(spec).verdict == "passed"
    assert not list(tmp_path.rglob("*.pyc"))


def test_more_tensors_than_a_handful(asked: Kernels, tmp_path: Path) -> None:
    names = [f"x{i}" for i in range(80)]
    annotated = ", ".join(f'{name}: Float[Tensor, "3"]' for name in names)
    reference = f'def reference({annotated}) -> Float[Tensor, "3"]:\n    return sum([{", ".join(names)}])\n'
    kernel = f"def run_kernel({', '.join(names)}, y):\n    y.copy_(sum([{', '.join(names)}]))\n"
    record = asked.ask(asked.write(tmp_path, kernel, reference))
    assert record.verdict == "passed", record.message


def test_a_mistake_in_the_kernels_own_setup_is_told_as_the_kernels(asked: Kernels, tmp_path: Path) -> None:
    for setup, words in (
        ("return [1, 2]", 'setup() must return {"inputs"'),
        ("return {'inputs': {'x': object()}, 'outputs': ['y']}", "setup() gives 'x' as a object"),
    ):
        spec = asked.write(tmp_path, f"def setup():\n    {setup}\ndef run_kernel(x, y):\n    pass\n", None)
        record = asked.ask(spec)
        assert record.verdict == "failed"
        assert words in (record.message or "")


def test_a_kernel_does_not_speak_with_the_referees_voice(asked: Kernels, tmp_path: Path) -> None:
    head = "from pytest_kernelopt.core.errors import KernelError\n"
    forged = f"{head}def run_kernel(x, y):\n    raise KernelError('the reference is wrong')\n"
    record = asked.ask(asked.write(tmp_path, forged))
    assert (record.verdict, record.kind) == ("failed", "raised")
    assert "KernelError: the reference is wrong" in (record.message or "")


def test_a_message_that_is_no_unicode_is_a_message(asked: Kernels, tmp_path: Path) -> None:
    record = asked.ask(asked.write(tmp_path, "def run_kernel(x, y):\n    raise ValueError('caf\\udce9')\n"))
    assert record.verdict == "failed"
    assert r"caf\udce9" in (record.message or "")
    record.model_dump_json()


@pytest.mark.parametrize("value", ["FACTOR * v", "v * FACTOR", "(FACTOR > v) * 0 + v * FACTOR", "(SIZE - SIZE) + FACTOR * v"])
def test_global_constants_stand_on_either_side_of_a_tensor(asked: Kernels, tmp_path: Path, value: str) -> None:
    kernel = f"""{TRITON}
FACTOR = tl.constexpr(2.0)
SIZE = tl.constexpr(512)

@triton.jit
def twice(x, y, n):
    i = tl.arange(0, SIZE)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, {value}, mask=i < n)

def run_kernel(x, y):
    twice[(1,)](x, y, 300)
"""
    record = asked.ask(asked.write(tmp_path, kernel))
    assert record.verdict == "passed", record.message


@pytest.mark.parametrize(("name", "words"), [("right", None), ("keeps_an_answer", "the answer does not follow the input")])
def test_answers_of_timed_calls_are_checked_on_inputs_changed_in_place(asked: Kernels, name: str, words: str | None) -> None:
    stage, spec = asked.evaluator.stage, load(ZOO / f"{name}_triton.py")
    judging = asked.evaluator._judging(spec)
    with stage.turn():
        trial = stage.trial(spec, spec.cases[0], None, judging, None)
        trial.map(2)
        for index in range(2):
            trial.fill(index, 5 + index, "A")
            trial.call(index)

        def timed() -> None:
            for index in range(2):
                trial.call(index)

        if words is None:
            check.check_timed(trial, 2, 77, timed)
        else:
            with pytest.raises(KernelError, match=words):
                check.check_timed(trial, 2, 77, timed)


SAMPLES = {
    "spans": [1, 2],
    "events": [2.0, 3.0],
    "wall": [4, 4],
    "enqueue": [1, 1],
    "host": [1, 1],
    "kernels": ["k"],
    "launch_error": None,
}
CALL = {"seconds": 0.1, "status": 0, "launch_error": None, "returned": None}


@pytest.mark.parametrize(
    "wrong",
    [
        {"spans": [1]},
        {"events": [1, float("nan")]},
        {"wall": [1, "2"]},
        {"enqueue": [True, 1]},
        {"spans": None},
        {"kernels": 7},
        {"launch_error": {"code": 1}},
        {"launch_error": 3},
    ],
)
def test_samples_of_no_call_are_refused(wrong: dict[str, object]) -> None:
    assert replies.samples(SAMPLES, 2)["spans"] == [1, 2]
    assert replies.samples({**SAMPLES, "spans": []}, 2)["spans"] == []
    with pytest.raises(ChildFailure, match="a reply that no call gives"):
        replies.samples({**SAMPLES, **wrong}, 2)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        [],
        "result",
        {},
        {**CALL, "seconds": float("inf")},
        {**CALL, "status": None},
        {**CALL, "launch_error": [1]},
        {**CALL, "returned": [1]},
        {**CALL, "returned": [{"name": "y", "type": "t", "dtype": "float32", "shape": 3}]},
    ],
)
def test_a_result_of_no_call_is_refused(reply: object) -> None:
    assert replies.call_result(CALL).seconds == 0.1
    with pytest.raises(ChildFailure, match="a reply that no call gives"):
        replies.call_result(reply)
