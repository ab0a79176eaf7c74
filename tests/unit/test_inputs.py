"""Generated inputs, make_inputs, and calling the reference on them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
import torch

from pytest_kernelopt.core.errors import KernelError, Unavailable
from pytest_kernelopt.core.reference.binding import bind
from pytest_kernelopt.core.reference.inputs import call_reference, generate
from pytest_kernelopt.core.reference.module import Reference, load_reference
from pytest_kernelopt.core.reference.problem import Problem, ReferenceCall, TensorSpec
from pytest_kernelopt.core.reference.values import as_passed
from pytest_kernelopt.core.spec import load
from pytest_kernelopt.core.spec.model import Case

HEAD = "import torch\nfrom torch import Tensor\nfrom jaxtyping import Float, Int, Int32, UInt8\n"
CASE = Case((("n", 6),))


def bound(folder: Path, parameters: str, reference: str, case: Case = CASE) -> tuple[Problem, Reference]:
    kernel, path = folder / "op.cu", folder / "op_ref.py"
    kernel.write_text(f'#include <cuda_fp16.h>\nextern "C" void solve({parameters}) {{}}\n')
    path.write_text(HEAD + dedent(reference))
    loaded = load_reference(path)
    return bind(load(kernel), loaded, case), loaded


def expected(
    folder: Path, parameters: str, reference: str, *, float64: bool = True, warnings: list[str] | None = None
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    problem, loaded = bound(folder, parameters, reference)
    tensors = generate(problem, loaded, CASE, 0, "cpu")
    return tensors, call_reference(loaded, problem, tensors, CASE, float64=float64, warnings=warnings)


def one(dtype: str, shape: tuple[int, ...] = (4096,), name: str = "x") -> Problem:
    return Problem((TensorSpec(name, dtype, shape, "input"),), ())


def draw(dtype: str, seed: int = 0, case: Case = CASE, name: str = "x") -> torch.Tensor:
    return generate(one(dtype, name=name), None, case, seed, "cpu")[name]


REAL = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("dtype", [*REAL, "complex64", "complex128"])
def test_floats_and_complex_numbers_are_standard_normal(dtype):
    values = draw(dtype)
    assert values.dtype is getattr(torch, dtype)
    wide = values.to(torch.complex128 if values.is_complex() else torch.float64)
    assert abs(wide.mean()) < 0.1
    assert 0.9 < wide.std() < 1.1


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_are_small_and_not_negative(dtype):
    values = draw(dtype)
    assert values.dtype is getattr(torch, dtype)
    assert sorted(set(values.to(torch.int64).tolist())) == list(range(10))


def test_signed_bytes_have_both_signs_and_bools_both_values():
    assert sorted(set(draw("int8").tolist())) == list(range(-8, 8))
    assert 0.4 < draw("bool").float().mean() < 0.6


def test_values_depend_on_seed_case_and_name_and_on_nothing_else():
    base = draw("float32")
    assert torch.equal(base, draw("float32"))
    for other in (draw("float32", seed=1), draw("float32", case=Case((("n", 7),))), draw("float32", name="y")):
        assert not torch.equal(base, other)
    more = Problem((TensorSpec("z", "float32", (5,), "input"), TensorSpec("x", "float32", (4096,), "inout")), ())
    assert torch.equal(generate(more, None, CASE, 0, "cpu")["x"], base)


def test_backends_that_name_a_tensor_differently_get_the_same_values():
    renamed = Problem((TensorSpec("A", "float32", (4096,), "input"),), (), call=ReferenceCall(tensors=(("x", "A"),)))
    assert torch.equal(generate(renamed, None, CASE, 0, "cpu")["A"], draw("float32"))


def test_outputs_are_not_generated_and_empty_and_scalar_tensors_are():
    a, b = TensorSpec("a", "float32", (), "input"), TensorSpec("b", "int32", (0, 3), "inout")
    problem = Problem((a, b, TensorSpec("y", "int32", (2,), "output")), ())
    made = generate(problem, None, CASE, 0, "cpu")
    assert {name: tuple(t.shape) for name, t in made.items()} == {"a": (), "b": (0, 3)}


def test_no_memory_is_not_the_users_mistake():
    with pytest.raises(Unavailable, match="no memory for 'x'"):
        generate(one("float32", (2**54,)), None, CASE, 0, "cpu")


GATHER = """
    def make_inputs(*, seed, device, n, **dims):
        generator = torch.Generator(device).manual_seed(seed)
        return {"Index": torch.randint(0, n, (n,), generator=generator, device=device)}

    def reference(index: Int[Tensor, "n"], table: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        return table[index]
"""


def test_make_inputs_gives_some_tensors_and_the_rest_is_generated(tmp_path):
    problem, reference = bound(tmp_path, "const int* index, const float* table, float* out, int n", GATHER)
    tensors = generate(problem, reference, CASE, 3, "cpu")
    assert tensors["index"].dtype is torch.int32  # the kernel's type, from int64
    assert torch.equal(tensors["index"].long(), torch.randint(0, 6, (6,), generator=torch.Generator().manual_seed(3)))
    assert tensors["table"].shape == (6,)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("torch.zeros(n)", "returned a Tensor where a dict of tensors by name is meant"),
        ("{'idx': torch.zeros(n)}", "returned 'idx', and the tensors are x, b, y"),
        ("{'x': torch.zeros(n + 1)}", r"returned 'x' with the shape \(7,\), and \(6,\) was declared"),
        ("{'x': torch.zeros(n, dtype=torch.int32)}", "returned 'x' in int32, and it is float32"),
        ("{'x': torch.zeros(n, device='meta')}", "returned 'x' on meta and not on cpu"),
        ("{'x': 3.0}", "returned a float as 'x', which is a tensor"),
        ("{'x': [1.0]}", "returned a list as 'x' where a tensor or a scalar is meant"),
        ("{'y': torch.zeros(n)}", r"returned 'y', an output: name it in inout = \['y'\]"),
        ("{'n': 5}", "returned 5 as 'n' where 6 is in use"),
        ("{'b': torch.full((n,), 256)}", "returned 'b' with values that uint8 can't hold"),
    ],
)
def test_a_wrong_make_inputs_is_one_sentence_with_its_line(tmp_path, made, message):
    text = f"""
        def make_inputs(*, seed, device, n):
            return {made}

        def reference(x: Float[Tensor, "n"], b: UInt8[Tensor, "n"]) -> Float[Tensor, "n"]:
            return x
    """
    problem, reference = bound(tmp_path, "const float* x, const unsigned char* b, float* y, int n", text)
    with pytest.raises(KernelError, match=rf"op_ref\.py:5: make_inputs\(\) {message}"):
        generate(problem, reference, CASE, 0, "cpu")


def test_start_values_of_an_inout_may_come_from_make_inputs(tmp_path):
    text = """
        inout = ["out"]
        def make_inputs(*, seed, device, n):
            return {"out": torch.zeros(n, device=device)}

        def reference(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
            kept = x[x > 0]
            return torch.cat([kept, torch.zeros(len(x) - len(kept))])
    """
    problem, reference = bound(tmp_path, "const float* x, int n, float* out", text)
    assert problem.tensor("out").role == "inout"
    tensors = generate(problem, reference, CASE, 0, "cpu")
    assert torch.equal(tensors["out"], torch.zeros(6))
    assert call_reference(reference, problem, tensors, CASE, float64=False)["out"].shape == (6,)


SCALE = 'def reference(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:\n    return x / 3\n'
PARAMETERS = "const half* x, half* y, int n"


def test_the_reference_is_computed_in_float64_on_the_rounded_inputs(tmp_path):
    tensors, result = expected(tmp_path, PARAMETERS, SCALE)
    assert torch.equal(result["y"], tensors["x"].double() / 3)
    _, native = expected(tmp_path, PARAMETERS, SCALE, float64=False)
    assert native["y"].dtype is torch.float16


def test_integers_stay_as_they_are(tmp_path):
    text = """
        def reference(x: Int32[Tensor, "n"]) -> Int[Tensor, "n"]:
            assert x.dtype == torch.int32
            return x.cumsum(0)
    """
    tensors, result = expected(tmp_path, "const int* x, int* y, int n", text)
    assert torch.equal(result["y"], tensors["x"].cumsum(0))


def test_a_reference_that_needs_float32_is_given_it_with_a_warning(tmp_path):
    text = SCALE.replace("x / 3", "torch.eye(len(x)) @ x.to(torch.promote_types(x.dtype, torch.float32))")
    warnings: list[str] = []
    tensors, result = expected(tmp_path, PARAMETERS, text, warnings=warnings)
    assert result["y"].dtype is torch.float32
    assert torch.equal(result["y"], tensors["x"].float())
    assert len(warnings) == 1
    assert "computed in float32, not in float64" in warnings[0]
    assert "op_ref.py:5" in warnings[0]


def test_a_reference_for_its_own_types_only_is_called_with_these(tmp_path):
    text = SCALE.replace("return x", "assert x.dtype == torch.float16\n    return x")
    warnings: list[str] = []
    assert expected(tmp_path, PARAMETERS, text, warnings=warnings)[1]["y"].dtype is torch.float16
    assert "in the precision of the inputs" in warnings[0]


def test_the_inputs_themselves_are_never_changed(tmp_path):
    text = 'inout = ["y"]\ndef reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> None:\n    y.add_(x)\n'
    for float64 in (True, False):
        problem, reference = bound(tmp_path, "const float* x, float* y, int n", text)
        tensors = generate(problem, reference, CASE, 0, "cpu")
        before = {name: t.clone() for name, t in tensors.items()}
        result = call_reference(reference, problem, tensors, CASE, float64=float64)
        assert all(torch.equal(tensors[name], before[name]) for name in before)
        assert torch.allclose(result["y"].float(), before["x"] + before["y"])


def test_a_pure_output_written_in_place(tmp_path):
    text = 'def reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> None:\n    y.copy_(x / 3)\n'
    tensors, result = expected(tmp_path, "const float* x, float* y, int n", text)
    assert torch.equal(result["y"], tensors["x"].double() / 3)


def test_dict_results_go_to_their_names_and_views_are_made_contiguous(tmp_path):
    text = 'def reference(x: Float[Tensor, "2 n"]):\n    return {"b": x.t(), "a": x.sum()}\n'
    tensors, result = expected(tmp_path, "const float* x, float* a, float* b, int n", text)
    assert list(result) == ["a", "b"]
    assert result["a"].shape == ()
    assert result["b"].is_contiguous()
    assert torch.equal(result["b"], tensors["x"].double().t())


def test_a_named_tuple_and_a_plain_one_in_its_place(tmp_path):
    text = """
        from typing import NamedTuple

        class Out(NamedTuple):
            b: Float[Tensor, "n"]
            a: Float[Tensor, "n"]

        def reference(x: Float[Tensor, "n"]) -> Out:
            return {}(x, x + 1)
    """
    for how in ("Out", ""):
        tensors, result = expected(tmp_path, "const float* x, float* a, float* b, int n", text.format(how))
        assert torch.equal(result["a"], tensors["x"].double() + 1)
        assert torch.equal(result["b"], tensors["x"].double())


def test_a_reference_without_tensors_is_put_on_the_device_that_is_asked_for(tmp_path):
    text = 'def reference(n: int) -> Int[Tensor, "n"]:\n    return torch.arange(n)\n'
    problem, reference = bound(tmp_path, "int* out, int n", text)
    assert call_reference(reference, problem, {}, CASE, float64=True)["out"].tolist() == list(range(6))
    assert call_reference(reference, problem, {}, CASE, float64=True, device="meta")["out"].is_meta


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "returned no tensor, and 1 tensor is due"),
        ("return x, x", "returned 2 tensors, and 1 tensor is due"),
        ("return 3.0", "returned a float where a tensor is meant"),
        ("return x[1:]", r"gives 'y' the shape \(5,\), and \(6,\) was declared"),
        ("return x.to(torch.complex64)", "gives 'y' in complex64, and it is float32 in the kernel"),
        ("x.add_(1); return x", r"writes into its input 'x': name it in inout = \['x'\]"),
    ],
)
def test_a_result_that_contradicts_the_annotation_is_one_sentence(tmp_path, body, message):
    text = f'def reference(x: Float[Tensor, "n"]) -> Float[Tensor, "n"]:\n    {body}\n'
    with pytest.raises(KernelError, match=rf"op_ref\.py:4: reference\(\) {message}"):
        expected(tmp_path, "const float* x, float* y, int n", text)


def test_a_float_for_an_integer_output_is_refused_and_an_integer_of_another_width_is_not(tmp_path):
    text = 'def reference(x: Float[Tensor, "n"]) -> Int[Tensor, ""]:\n    return x.argmax()\n'
    assert expected(tmp_path, "const float* x, int* y, int n", text)[1]["y"].dtype is torch.int64
    with pytest.raises(KernelError, match="gives 'y' in float64, and it is int32"):
        expected(tmp_path, "const float* x, int* y, int n", text.replace("argmax", "max"))


def test_an_output_that_the_reference_leaves_alone_is_refused(tmp_path):
    text = 'outputs = ["y"]\ndef reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> None:\n    y = x + 1\n'
    with pytest.raises(KernelError, match="neither returns 'y' nor writes into it"):
        expected(tmp_path, "const float* x, float* y, int n", text)


def test_a_dict_that_changes_its_keys_is_refused(tmp_path):
    text = 'def reference(x: Float[Tensor, "n"]):\n    return {"y": x}\n'
    problem, reference = bound(tmp_path, "const float* x, float* y, int n", text)
    (tmp_path / "op_ref.py").write_text('def reference(x):\n    return {"z": x}\n')
    loose = load_reference(tmp_path / "op_ref.py")
    with pytest.raises(KernelError, match=r"reference\(\) returned z where y are due"):
        call_reference(loose, problem, generate(problem, reference, CASE, 0, "cpu"), CASE, float64=False)


def test_an_exception_names_the_users_line_the_case_and_the_likely_cause(tmp_path):
    text = 'def reference(i: Int[Tensor, "n"], t: Float[Tensor, "2"]) -> Float[Tensor, "n"]:\n    return t[i]\n'
    cause = r"\(case n6; integers are drawn from small ranges: define make_inputs\(\)"
    message = rf"op_ref\.py:5: reference\(\) raised IndexError: .* {cause}"
    with pytest.raises(KernelError, match=message):
        expected(tmp_path, "const int* i, const float* t, float* y, int n", text)


def test_gradients_of_the_reference_are_left_out(tmp_path):
    text = "weight = torch.ones(6, requires_grad=True)\n" + SCALE.replace("x / 3", "x * weight")
    assert not expected(tmp_path, "const float* x, float* y, int n", text)[1]["y"].requires_grad


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("value", [0.1, -1.00390625, 1.01171875, 3e38, -1e39, 1e-30, 65520.0, float("inf")])
def test_a_scalar_reaches_the_reference_as_precise_as_the_kernel_gets_it(dtype, value):
    assert as_passed(value, dtype) == torch.tensor(value, dtype=torch.float64).to(getattr(torch, dtype)).item()
