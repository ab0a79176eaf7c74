"""A kernel and a reference, bound at a case: names, shapes, types, dims and scalars."""

from __future__ import annotations

import json

import pytest
from bound_files import SOFTMAX, Files, scalars, tensors

from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.reference.problem import Problem


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(tmp_path)


def test_shapes_come_from_annotations_and_types_from_pointers(files):
    problem = files.cuda("const half* x, half* y, int rows, int cols", SOFTMAX, rows=3, cols=8)
    assert tensors(problem) == {"x": ("input", "float16", (3, 8)), "y": ("output", "float16", (3, 8))}
    assert scalars(problem) == {"rows": 3, "cols": 8}
    assert [a.name for a in problem.arguments] == ["x", "y", "rows", "cols"]
    assert problem.call.tensors == (("x", "x"),)
    assert problem.call.returned == ("y",)
    assert problem.verified
    assert not problem.warnings


def test_a_problem_survives_json(files):
    problem = files.cuda("const float* x, float* y, int rows, int cols", SOFTMAX, rows=3, cols=8)
    assert Problem.from_json(json.loads(json.dumps(problem.to_json()))) == problem


def test_a_stream_is_an_argument_of_its_own(files):
    problem = files.cuda("const float* x, float* y, int rows, int cols, cudaStream_t stream", SOFTMAX, rows=3, cols=8)
    assert [a.kind for a in problem.arguments] == ["tensor", "tensor", "scalar", "scalar", "stream"]


ADD = 'def reference(a: Float[Tensor, "n"], b: Float[Tensor, "n"]) -> Float[Tensor, "n"]:\n    return a - b\n'


@pytest.mark.parametrize("names", ["a b c n", "A B C N", "p q r n", "b a out n", "in1 in2 out N"])
def test_names_bind_first_then_names_in_another_case_then_order(files, names):
    first, second, out, n = names.split()
    problem = files.cuda(f"const float* {first}, const float* {second}, float* {out}, int {n}", ADD, n=7)
    expected = (("a", "a"), ("b", "b")) if names.startswith("b") else (("a", first), ("b", second))
    assert problem.call.tensors == expected
    assert problem.call.returned == (out,)
    assert scalars(problem) == {n: 7}


def test_one_reference_answers_to_a_triton_solve_with_other_names(files):
    problem = files.triton("def solve(A, B, C, N):\n    ...\n", ADD, n=7)
    assert [(t.name, t.role) for t in problem.tensors] == [("A", "input"), ("B", "input"), ("C", "output")]
    assert scalars(problem) == {"N": 7}


def test_a_const_pointer_without_a_parameter_binds_to_nothing(files):
    with pytest.raises(KernelError, match=r"op\.cu:2: 'bias' of the kernel binds to nothing: .*reference\(x\)"):
        files.cuda("const float* x, const float* bias, float* y, int rows, int cols", SOFTMAX, rows=2, cols=3)


def test_a_parameter_without_a_pointer_binds_to_nothing(files):
    with pytest.raises(KernelError, match=r"op_ref\.py:4: 'b' of the reference binds to nothing"):
        files.cuda("const float* a, int n", ADD, n=3)


def test_a_scalar_that_is_no_dim_lists_both_sides(files):
    cure = r"add it to a case in op_ref\.py or pass --kopt-dims \"rows=2,cols=3,n="
    message = rf"op\.cu:2: dim 'n' has no value \(the dims are rows, cols\): {cure}.*solve\(x, y, n\)"
    with pytest.raises(KernelError, match=message):
        files.cuda("const float* x, float* y, int n", SOFTMAX, rows=2, cols=3)


def test_a_kernel_without_inputs(files):
    text = 'def reference(n: int) -> Int[Tensor, "n"]:\n    return torch.arange(n, dtype=torch.int32)\n'
    assert tensors(files.cuda("int* out, int n", text, n=4)) == {"out": ("output", "int32", (4,))}


def test_a_missing_dim_of_a_shape_says_where_it_belongs(files):
    cure = r"add it to a case in op_ref\.py or pass --kopt-dims \"cols=3,rows="
    with pytest.raises(KernelError, match=rf"op_ref\.py:4: 'x': dim 'rows' has no value .*{cure}"):
        files.cuda("const float* x, float* y, int cols", SOFTMAX, cols=3)


def test_a_pointer_that_contradicts_a_fixed_type_names_both(files):
    text = SOFTMAX.replace("Float[", "Float32[", 1)
    with pytest.raises(KernelError, match=r'op\.cu:2: .*half.*float16.*op_ref\.py:4 declares Float32\[Tensor, "rows cols"\]'):
        files.cuda("const half* x, float* y, int rows, int cols", text, rows=2, cols=2)


def test_an_integer_pointer_contradicts_a_float_annotation(files):
    with pytest.raises(KernelError, match="holds int32"):
        files.cuda("const int* x, float* y, int rows, int cols", SOFTMAX, rows=2, cols=2)


def test_a_tensor_and_a_scalar_of_one_name_contradict_each_other(files):
    with pytest.raises(KernelError, match="'x' is a scalar here and a tensor in"):
        files.cuda("float x, float* y, int rows, int cols", SOFTMAX, rows=2, cols=2)


def test_void_pointers_take_their_type_from_the_reference(files):
    text = 'def reference(x: Int8[Tensor, "n"]) -> Float16[Tensor, "n"]:\n    return x.half()\n'
    problem = files.cuda("const void* x, void* y, int n", text, n=4)
    assert tensors(problem) == {"x": ("input", "int8", (4,)), "y": ("output", "float16", (4,))}


def test_vector_pointers_have_the_shape_in_scalars(files):
    problem = files.cuda("const float4* x, float4* y, int rows, int cols", SOFTMAX, rows=3, cols=8)
    assert tensors(problem)["x"] == ("input", "float32", (3, 8))
    with pytest.raises(KernelError, match=r"takes 4 elements at a time, and the last axis of its shape \(3, 6\) is 6"):
        files.cuda("const float4* x, float4* y, int rows, int cols", SOFTMAX, rows=3, cols=6)


def test_float2_holds_a_complex_number(files):
    text = 'def reference(x: Complex64[Tensor, "n"]) -> Complex64[Tensor, "n"]:\n    return x.conj()\n'
    problem = files.cuda("const float2* x, float2* y, int n", text, n=5)
    assert tensors(problem) == {"x": ("input", "complex64", (5,)), "y": ("output", "complex64", (5,))}


def test_the_dtype_of_the_case_is_taken_where_nothing_else_says(files):
    text = """
        def reference(x: Float[Tensor, "n"], w: Float32[Tensor, "n"], i: Int[Tensor, "n"], m: Bool[Tensor, "n"]
                      ) -> Float[Tensor, "n"]:
            return x * w * i * m
    """
    problem = files.triton("def run_kernel(x, w, i, m, y):\n    ...\n", text, n=4, dtype="bf16")
    assert [t.dtype for t in problem.tensors] == ["bfloat16", "float32", "int32", "bool", "bfloat16"]
    with pytest.raises(KernelError, match="'floaty' is no dtype"):
        files.triton("def run_kernel(x, w, i, m, y):\n    ...\n", text, n=4, dtype="floaty")


def test_a_default_of_the_signature_gives_a_dim(files):
    problem = files.cuda("const float* x, float* y, int rows = 4, int cols = 2", SOFTMAX)
    assert problem.tensor("x").shape == (4, 2)


def test_the_default_of_the_reference_goes_before_that_of_the_kernel(files):
    text = 'def reference(x: Float[Tensor, "n"], alpha: float = 2.0) -> Float[Tensor, "n"]:\n    return alpha * x\n'
    problem = files.cuda("const float* x, float* y, int n, float alpha = 0.0f", text, n=2)
    assert scalars(problem)["alpha"] == 2.0
    assert dict(problem.call.scalars) == {"alpha": 2.0}


def test_scalars_with_other_names_bind_in_order_within_their_kind(files):
    text = 'def reference(x: Float[Tensor, "n"], scale: float, k: int) -> Float[Tensor, "n"]:\n    return scale * x + k\n'
    problem = files.cuda("const float* x, float* y, int shift, int n, float s", text, n=2, scale=0.1, k=3)
    assert scalars(problem) == {"shift": 3, "n": 2, "s": 0.1}
    assert dict(problem.call.scalars)["scale"] == pytest.approx(0.1, rel=1e-7)
    assert dict(problem.call.scalars)["scale"] != 0.1  # what a C float holds


@pytest.mark.parametrize(("value", "kind"), [(0.5, "int"), (300, "int8_t"), (-1, "size_t"), ("a", "float"), (2, "bool")])
def test_a_scalar_that_its_type_cannot_hold_is_refused(files, value, kind):
    text = 'def reference(x: Float[Tensor, "4"]) -> Float[Tensor, "4"]:\n    return x\n'
    with pytest.raises(KernelError, match=r"op\.cu:3: 's' is .* and can't be"):
        files.cuda(f"const float* x, float* y,\n{kind} s", text, s=value)


def test_whole_floats_are_integers(files):
    problem = files.cuda("const float* x, float* y, int rows, int cols", SOFTMAX, rows=2e0, cols=1e1)
    assert [repr(value) for value in scalars(problem).values()] == ["2", "10"]


def test_a_scalar_from_make_inputs(files):
    text = """
        def make_inputs(*, seed, device, n):
            return {"k": 3}

        def reference(x: Float[Tensor, "n"], k: int) -> Float[Tensor, "n"]:
            return x * k
    """
    problem = files.cuda("const float* x, float* y, int n, int k", text, n=5)
    assert scalars(problem) == {"n": 5, "k": 3}
    assert dict(problem.call.scalars) == {"k": 3}


def test_constraints_keep_a_case_out(files):
    text = SOFTMAX + 'constraints = ["cols % 4 == 0", "rows < cols or rows == 1"]\n'
    assert files.cuda("const float* x, float* y, int rows, int cols", text, rows=1, cols=8).tensors
    with pytest.raises(KernelError, match=r"case rows1-cols6 does not meet the constraint 'cols % 4 == 0'"):
        files.cuda("const float* x, float* y, int rows, int cols", text, rows=1, cols=6)


def test_flops_and_bytes_get_the_dims_that_they_name(files):
    text = SOFTMAX + "def flops(rows, **dims):\n    return rows * dims['cols'] * 5\ndef bytes_moved(cols):\n    return 8 * cols\n"
    problem = files.cuda("const float* x, float* y, int rows, int cols", text, rows=2, cols=8)
    assert (problem.flops, problem.bytes_moved) == (80.0, 64.0)
    with pytest.raises(KernelError, match=r"op_ref\.py:6: flops\(\): dim 'depth' has no value"):
        files.cuda("const float* x, float* y, int rows, int cols", SOFTMAX + "def flops(depth): return 1\n", rows=2, cols=8)


def test_the_reduction_is_the_longest_axis_that_is_gone(files):
    gemm = 'def reference(a: Float[Tensor, "m k"], b: Float[Tensor, "k n"]) -> Float[Tensor, "m n"]:\n    return a @ b\n'
    problem = files.cuda("const float* a, const float* b, float* c, int m, int n, int k", gemm, m=4096, n=64, k=64)
    assert problem.reduction == 64
    assert files.cuda("const float* x, float* y, int rows, int cols", SOFTMAX, rows=5, cols=3).reduction == 5


def test_a_dim_that_nothing_uses_is_mentioned(files):
    problem = files.cuda("const float* x, float* y, int rows, int cols", SOFTMAX, rows=2, cols=2, colls=3)
    assert problem.warnings == ("dim 'colls' of case rows2-cols2-colls3 is used by nothing",)


def test_an_unannotated_in_place_reference_gets_guessed_sizes(files):
    text = "def reference(A, B, M, N, k):\n    B.copy_(A * k)\n"
    problem = files.cuda("const float* A, float* B, int M, int N, int k", text, M=6, N=4, k=2)
    assert tensors(problem) == {"A": ("input", "float32", (24,)), "B": ("output", "float32", (24,))}
    assert problem.guessed_sizes
    assert "the sizes of A, B were guessed" in problem.warnings[0]
    problem = files.cuda("const float* A, float* B, int M, int N, int k", text, M=6, N=4, k=2, ptr_size=10)
    assert problem.tensor("A").shape == (10,)


def test_a_reference_that_takes_anything_gets_the_kernels_names(files):
    text = "def reference(**tensors):\n    tensors['B'].copy_(tensors['A'] * tensors['N'])\n"
    problem = files.cuda("const float* A, float* B, int N", text, N=4)
    assert problem.tensor("B").role == "output"
    assert dict(problem.call.scalars) == {"N": 4}


def test_an_unannotated_reference_takes_shapes_from_make_inputs(files):
    text = """
        def make_inputs(*, seed, device, n):
            return {"x": torch.ones(n, 2, device=device)}

        def reference(x):
            return x.sum(1)
    """
    problem = files.cuda("const float* x, float* y, int n", text, n=4)
    assert tensors(problem) == {"x": ("input", "float32", (4, 2)), "y": ("output", "float32", (4,))}
    assert not problem.guessed_sizes


def test_an_error_of_the_reference_while_binding_has_its_line(files):
    text = "def reference(x, n):\n    return x.view(n, 3)\n"
    with pytest.raises(KernelError, match=r"op_ref\.py:5: reference\(\) raised RuntimeError"):
        files.cuda("const float* x, float* y, int n", text, n=4)


def test_without_a_reference_sizes_are_guessed_and_nothing_is_verified(files):
    problem = files.cuda("const float* A, float* B, int N, float s", None, N=100, s=1)
    assert tensors(problem) == {"A": ("input", "float32", (100,)), "B": ("output", "float32", (100,))}
    assert not problem.verified
    assert problem.guessed_sizes
    assert "op_ref.py" in problem.warnings[0]
    with pytest.raises(KernelError, match=r"dim 's' has no value .*pass --kopt-dims \"N=100,s="):
        files.cuda("const float* A, float* B, int N, float s", None, N=100)
