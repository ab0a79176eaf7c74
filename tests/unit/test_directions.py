"""Which tensors of a kernel are inputs, outputs or both, and which result belongs to which."""

from __future__ import annotations

import pytest
from bound_files import SOFTMAX, Files, scalars, tensors

from pytest_kernelopt.core.errors import KernelError


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(tmp_path)


def test_an_output_before_the_input_is_not_taken_for_it(files):
    problem = files.cuda("float* out, const float* in, int rows, int cols", SOFTMAX, rows=2, cols=4)
    assert {t.name: t.role for t in problem.tensors} == {"out": "output", "in": "input"}


def test_an_input_without_const_is_an_input_when_the_reference_returns_the_output(files):
    rope = """
        def reference(Q: Float[Tensor, "m d"], cos: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
            return Q * cos
    """
    problem = files.cuda("float* Q, float* cos, float* output, int M, int D", rope, M=2, D=4)
    assert {t.name: t.role for t in problem.tensors} == {"Q": "input", "cos": "input", "output": "output"}


def test_a_result_for_a_pointer_that_is_also_a_parameter_is_inout(files):
    gemm = """
        def reference(A: Float[Tensor, "M K"], B: Float[Tensor, "K N"], C: Float[Tensor, "M N"], alpha: float, beta: float
                      ) -> Float[Tensor, "M N"]:
            return alpha * A @ B + beta * C
    """
    dims = {"M": 2, "N": 3, "K": 4, "alpha": 1, "beta": 0.5}
    signature = "const half* A, const half* B, half* C, int M, int N, int K, float alpha, float beta"
    problem = files.cuda(signature, gemm, **dims)
    assert tensors(problem)["C"] == ("inout", "float16", (2, 3))
    assert scalars(problem)["alpha"] == 1.0
    assert dict(problem.call.scalars) == {"alpha": 1.0, "beta": 0.5}
    assert problem.reduction == 4


IN_PLACE = """
    def reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"], alpha: float) -> None:
        {body}
"""


@pytest.mark.parametrize(
    ("body", "role"), [("y.add_(x, alpha=alpha)", "inout"), ("y.copy_(alpha * x)", "output"), ("y[x > 0] = alpha", "inout")]
)
def test_what_an_in_place_reference_reads_of_the_old_values_makes_output_or_inout(files, body, role):
    problem = files.cuda("const float* x, float* y, float alpha, int n", IN_PLACE.format(body=body), n=64, alpha=2)
    assert {t.name: t.role for t in problem.tensors} == {"x": "input", "y": role}
    assert problem.call.returned == ()


def test_an_in_place_reference_shows_which_pointer_has_forgotten_its_const(files):
    problem = files.cuda("float* x, float* y, float alpha, int n", IN_PLACE.format(body="y.copy_(alpha * x)"), n=8, alpha=2)
    assert {t.name: t.role for t in problem.tensors} == {"x": "input", "y": "output"}


def test_outputs_and_inout_of_the_reference_win(files):
    text = IN_PLACE.format(body="y.add_(x)") + "\n    outputs = ['y']\n"
    assert files.cuda("float* x, float* y, float alpha, int n", text, n=8, alpha=2).tensor("y").role == "output"
    text = IN_PLACE.format(body="y.copy_(x)") + "\n    inout = ['y']\n"
    assert files.cuda("float* x, float* y, float alpha, int n", text, n=8, alpha=2).tensor("y").role == "inout"


ACCUMULATE = """
    inout = ["acc"]
    def reference(x: Float[Tensor, "n"], acc: Float[Tensor, "n"]) -> {annotation}:
        {body}
"""


def test_an_inout_may_be_returned_or_written_beside_an_output(files):
    written = ACCUMULATE.format(annotation='Float[Tensor, "n"]', body="acc.add_(x); return x * 2")
    both = ACCUMULATE.format(annotation='tuple[Float[Tensor, "n"], Float[Tensor, "n"]]', body="return acc + x, x * 2")
    for text, returned in ((written, ("out",)), (both, ("acc", "out"))):
        problem = files.cuda("const float* x, float* acc, float* out, int n", text, n=4)
        assert {t.name: t.role for t in problem.tensors} == {"x": "input", "acc": "inout", "out": "output"}
        assert problem.call.returned == returned


def test_without_a_declaration_all_bound_pointers_take_as_many_results(files):
    text = """
        def reference(q: Float[Tensor, "n"], k: Float[Tensor, "n"], cos: Float[Tensor, "n"]
                      ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
            return q * cos, k * cos
    """
    problem = files.cuda("float* q, float* k, const float* cos, int n", text, n=4)
    assert {t.name: t.role for t in problem.tensors} == {"q": "inout", "k": "inout", "cos": "input"}
    with pytest.raises(KernelError, match=r"say which with outputs = \[\.\.\.\] or inout = \[\.\.\.\]"):
        files.cuda("float* q, float* k, float* cos, int n", text, n=4)
    problem = files.cuda("float* q, float* k, float* cos, int n", text + "\n        inout = ['k', 'q']\n", n=4)
    assert problem.tensor("cos").role == "input"


def test_start_values_from_make_inputs_make_a_written_tensor_inout(files):
    text = """
        def make_inputs(*, seed, device, n):
            return {"y": torch.zeros(n, device=device)}

        def reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> None:
            y.copy_(x)
    """
    assert files.cuda("const float* x, float* y, int n", text, n=8).tensor("y").role == "inout"


def test_an_in_place_reference_that_writes_nothing_is_refused(files):
    with pytest.raises(KernelError, match="writes into no tensor"):
        files.cuda("const float* x, float* y, float alpha, int n", IN_PLACE.format(body="y = y + x"), n=8, alpha=1)


def test_const_in_outputs_is_refused(files):
    with pytest.raises(KernelError, match=r"op\.cu:2: 'x' is const, and op_ref\.py names it in outputs"):
        files.cuda("const float* x, float* y, int rows, int cols", SOFTMAX + "outputs = ['x']\n", rows=2, cols=2)


def test_an_unknown_name_in_inout_lists_both_sides(files):
    with pytest.raises(KernelError, match=r"'z' in inout binds to nothing: the kernel is solve\(x, y, rows, cols\)"):
        files.cuda("const float* x, float* y, int rows, int cols", SOFTMAX + "inout = ['z']\n", rows=2, cols=2)


TWO = """
    def reference(x: Float[Tensor, "n m"]) -> tuple[Float[Tensor, "n"], Float32[Tensor, "n m"]]:
        return x.sum(1), x.float()
"""


def test_a_tuple_binds_to_the_output_pointers_in_order(files):
    problem = files.cuda("float* total, const float* x, float* copy, int n, int m", TWO, n=2, m=3)
    assert tensors(problem)["total"] == ("output", "float32", (2,))
    assert tensors(problem)["copy"] == ("output", "float32", (2, 3))
    assert problem.call.returned == ("total", "copy")


def test_written_order_of_outputs_is_that_of_the_results(files):
    text = TWO + '\n    outputs = ["total", "copy"]\n'
    problem = files.cuda("const float* x, float* copy, float* total, int n, int m", text, n=2, m=3)
    assert problem.call.returned == ("total", "copy")
    assert problem.tensor("total").shape == (2,)


def test_a_dict_binds_by_name_and_its_shapes_are_those_of_a_call(files):
    text = """
        def reference(x: Float[Tensor, "n m"]):
            return {"mean": x.mean(1), "Y": x * 2}
    """
    problem = files.cuda("const float* x, float* y, float* mean, int n, int m", text, n=2, m=3)
    assert tensors(problem)["y"] == ("output", "float32", (2, 3))
    assert tensors(problem)["mean"] == ("output", "float32", (2,))
    assert problem.call.keys == ("mean", "Y")
    assert problem.call.returned == ("mean", "y")


def test_a_typed_dict_gives_names_and_shapes_without_a_call(files):
    text = """
        from typing import TypedDict

        class Out(TypedDict):
            mean: Float[Tensor, "n"]
            y: Float[Tensor, "n m"]

        def reference(x: Float[Tensor, "n m"]) -> Out:
            raise RuntimeError("called")
    """
    problem = files.cuda("const float* x, float* y, float* mean, int n, int m", text, n=2, m=3)
    assert problem.call.returned == ("mean", "y")
    assert problem.tensor("mean").shape == (2,)


def test_more_results_than_pointers_is_one_sentence_with_both_sides(files):
    message = r"op\.cu:2: reference\(\) returns 2, and the output pointers are 1 \(y\).*reference\(x\)"
    with pytest.raises(KernelError, match=message):
        files.cuda("const float* x, float* y, int n, int m", TWO, n=2, m=3)


def test_fewer_results_than_pointers_is_refused(files):
    with pytest.raises(KernelError, match=r"returns 1, and the output pointers are 2 \(y, work\)"):
        files.cuda("const float* x, float* y, float* work, int rows, int cols", SOFTMAX, rows=2, cols=3)


def test_a_result_that_contradicts_a_parameter_of_the_same_pointer_is_refused(files):
    text = 'def reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> Float[Tensor, "2*n"]:\n    return torch.cat([x, y])\n'
    with pytest.raises(KernelError, match=r"'y' is a parameter of shape \(3,\) and a result of shape \(6,\)"):
        files.cuda("const float* x, float* y, int n", text, n=3)
