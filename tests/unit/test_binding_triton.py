"""Binding Triton entries: parameters without types, `setup`, `**inputs`, results that are handed back."""

from __future__ import annotations

import pytest
from bound_files import SOFTMAX, Files, scalars, tensors

from pytest_kernelopt.core.errors import KernelError


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(tmp_path)


TRITON = "def run_kernel({parameters}):\n    ...\n"


def test_triton_parameters_that_are_neither_inputs_nor_dims_are_outputs(files):
    problem = files.triton(TRITON.format(parameters="x, y, cols, BLOCK=128"), SOFTMAX, rows=2, cols=4)
    assert tensors(problem) == {"x": ("input", "float32", (2, 4)), "y": ("output", "float32", (2, 4))}
    assert scalars(problem) == {"cols": 4}  # BLOCK keeps its default, rows is not asked for
    assert problem.returned == ()


def test_what_a_triton_kernel_has_no_parameter_for_it_hands_back(files):
    problem = files.triton(TRITON.format(parameters="x"), SOFTMAX, rows=2, cols=4)
    assert problem.returned == ("out0",)
    assert tensors(problem)["out0"] == ("output", "float32", (2, 4))
    assert [a.name for a in problem.arguments] == ["x"]
    named = 'def reference(x: Float[Tensor, "rows cols"]):\n    return {"prob": torch.softmax(x, -1)}\n'
    assert files.triton(TRITON.format(parameters="x"), named, rows=2, cols=4).returned == ("prob",)
    assert files.triton(TRITON.format(parameters="x"), SOFTMAX + "outputs = ['p']\n", rows=2, cols=4).returned == ("p",)


def test_a_triton_scalar_that_is_no_dim_is_not_taken_for_an_output(files):
    with pytest.raises(KernelError, match=r"returns 1, and the output pointers are 2 \(y, n_elements\)"):
        files.triton(TRITON.format(parameters="x, y, n_elements"), SOFTMAX, rows=2, cols=4)


def test_triton_in_place_by_a_reference_that_writes(files):
    text = """
        def reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"], alpha: float) -> None:
            y.add_(x, alpha=alpha)
    """
    problem = files.triton(TRITON.format(parameters="x, y, alpha"), text, n=8, alpha=2.0)
    assert {t.name: t.role for t in problem.tensors} == {"x": "input", "y": "inout"}


def test_run_kernel_with_any_inputs_gets_those_of_the_reference_and_the_dims(files):
    problem = files.triton(TRITON.format(parameters="**inputs"), SOFTMAX, rows=2, cols=4, dtype="float16")
    assert [(a.name, a.value) for a in problem.arguments] == [("x", None), ("rows", 2), ("cols", 4)]
    assert problem.returned == ("out0",)


SETUP = {
    "inputs": {"x": {"dtype": "float32", "shape": [1]}, "res": {"dtype": "float32", "shape": [1]}, "BLOCK": 64, "rows": 99},
    "outputs": ["res"],
}


def test_setup_gives_names_and_not_sizes(files):
    problem = files.triton(TRITON.format(parameters="**inputs"), SOFTMAX, rows=2, cols=4, setup_shapes=SETUP)
    assert tensors(problem) == {"x": ("input", "float32", (2, 4)), "res": ("output", "float32", (2, 4))}
    assert scalars(problem) == {"BLOCK": 64, "rows": 2}  # the dims are the case's


def test_setup_gives_sizes_where_the_reference_has_none(files):
    text = "def reference(x):\n    return x * 2\n"
    problem = files.triton(TRITON.format(parameters="x, res"), text, rows=2, setup_shapes=SETUP)
    assert tensors(problem) == {"x": ("input", "float32", (1,)), "res": ("output", "float32", (1,))}


def test_a_triton_kernel_alone_needs_a_setup_with_outputs(files):
    problem = files.triton(TRITON.format(parameters="**inputs"), None, setup_shapes=SETUP)
    assert {t.name: t.role for t in problem.tensors} == {"x": "input", "res": "output"}
    with pytest.raises(KernelError, match="names no outputs"):
        files.triton(TRITON.format(parameters="**inputs"), None, setup_shapes={**SETUP, "outputs": []})
    with pytest.raises(KernelError, match=r"no reference \(looked for op_triton_ref\.py, op_ref\.py\) and no setup"):
        files.triton(TRITON.format(parameters="x, y"), None)


def test_a_triton_output_that_the_reference_names_inout(files):
    text = """
        inout = ["y"]
        def reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
            return x + y
    """
    problem = files.triton(TRITON.format(parameters="x, y"), text, n=8)
    assert {t.name: t.role for t in problem.tensors} == {"x": "input", "y": "inout"}
    assert problem.returned == ()
    handed_back = files.triton(TRITON.format(parameters="x, y"), text.replace('inout = ["y"]', ""), n=8)
    assert {t.name: t.role for t in handed_back.tensors} == {"x": "input", "y": "input", "out0": "output"}


def test_named_parameters_beside_any_others(files):
    problem = files.triton(TRITON.format(parameters="x, y, **dims"), SOFTMAX, rows=2, cols=4, mode="fast", dtype="float16")
    assert [a.name for a in problem.arguments] == ["x", "y", "rows", "cols", "mode"]
    assert problem.tensor("y").role == "output"
