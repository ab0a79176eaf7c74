"""Annotations as dtypes and axes, and axes as sizes."""

from __future__ import annotations

import typing

import jaxtyping
import numpy
import pytest
import torch
from jaxtyping import Float, Float32, Int, Shaped
from torch import Tensor

from pytest_kernelopt.core.dtypes import DTYPES
from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.reference.shapes import UNSHAPED, Scope, evaluate, find, read_annotation, shape_of

SCOPE = Scope({"n": 10, "m": 3, "Rows": 7, "frac": 2.5, "flag": True, "dtype": "float16"}, "op_ref.py")


def sizes(axes: str, scope: Scope = SCOPE) -> tuple[int, ...]:
    annotation = read_annotation(Float[Tensor, axes], "here")
    return shape_of(annotation.axes, scope, "here")


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ("n m", (10, 3)),
        ("", ()),
        ("4", (4,)),
        ("n+1 n//3 2*n n-m n%m", (11, 3, 20, 7, 1)),
        ("(n+3)//4*4 n/2 2**m 1<<m -n+12", (12, 5, 8, 8, 2)),
        ("min(n,m) max(n,m,12)", (3, 12)),
        ("cols=4 rows=n", (4, 10)),
        ("#n ?m", (10, 3)),
        ("rows", (7,)),
        ("n-10", (0,)),
    ],
)
def test_axes_are_arithmetic_over_the_dims(axes, shape):
    assert sizes(axes) == shape


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("*batch n", "axis '*batch' stands for any number of axes"),
        ("... n", "axis '...' stands for any number of axes"),
        ("_ n", "axis '_' is anonymous"),
        ("n + 1", "axis '+' is not an expression (axes are parted by spaces: write 'n+1')"),
        ("m-n", "axis 'm-n' is -7 at these dims: a size can't be negative"),
        ("n/4", "axis 'n/4' is 2.5 at these dims, not a whole number"),
        ("n//0", "'n//0' has no value at these dims"),
        ("n**9999", "'n**9999' has no value at these dims"),
        ("dtype+1", "'dtype+1' has no value at these dims"),
        ("open(n)", "'open(n)' is not arithmetic over the dims"),
        ("n.real", "'n.real' is not arithmetic over the dims"),
        ("k", "dim 'k' has no value (the dims are n, m, Rows, frac, flag, dtype): add it to a case in op_ref.py or pass --kopt-"),
    ],
)
def test_an_axis_that_gives_no_size_is_refused_in_one_sentence(axes, message):
    with pytest.raises(KernelError) as caught:
        sizes(axes)
    assert str(caught.value).startswith(f"here: {message}")


def test_conditions_over_the_dims():
    assert evaluate("n % 5 == 0 and not m > n", SCOPE, "here") is True
    assert evaluate("1 < m < n or 1/0", SCOPE, "here") is True
    assert evaluate("dtype == 'float32'", SCOPE, "here") is False


def test_names_are_found_in_another_case_only_when_that_is_clear():
    assert find("n", ["N", "n"]) == "n"
    assert find("n", ["N", "m"]) == "N"
    assert find("aB", ["ab", "AB"]) is None


@pytest.mark.parametrize("name", list(DTYPES))
def test_every_fixed_type_of_jaxtyping_fixes_ours(name):
    kind = {"float8_e4m3fn": "Float8e4m3fn", "float8_e5m2": "Float8e5m2", "bfloat16": "BFloat16"}.get(name, name.title())
    kind = kind.replace("Uint", "UInt")
    annotation = read_annotation(getattr(jaxtyping, kind)[Tensor, "n"], "here")
    assert annotation.fixed
    assert annotation.dtypes == (name,)
    assert annotation.dtype(None, "float16") == name
    assert annotation.dtype(name, None) == name


@pytest.mark.parametrize(
    ("kind", "pointer", "case", "dtype"),
    [
        ("Float", None, None, "float32"),
        ("Float", None, "bfloat16", "bfloat16"),
        ("Float", "float16", "bfloat16", "float16"),
        ("Float", "int32", None, None),
        ("Int", None, "bfloat16", "int32"),
        ("Int", "int8", None, "int8"),
        ("Int", "uint8", None, None),
        ("UInt", None, None, "uint32"),
        ("Integer", "uint8", None, "uint8"),
        ("Integer", None, None, "int32"),
        ("Complex", None, None, "complex64"),
        ("Inexact", "complex64", None, "complex64"),
        ("Real", "int16", None, "int16"),
        ("Real", "complex64", None, None),
        ("Num", None, None, "float32"),
        ("Num", "bool", None, None),
        ("Shaped", "bool", None, "bool"),
        ("Shaped", None, "int8", "int8"),
    ],
)
def test_an_open_type_takes_the_pointers_then_the_cases_then_the_usual_one(kind, pointer, case, dtype):
    assert read_annotation(getattr(jaxtyping, kind)[Tensor, "n"], "here").dtype(pointer, case) == dtype


def test_annotations_without_a_shape():
    assert read_annotation(Tensor, "here") is UNSHAPED
    assert read_annotation(torch.nn.Parameter, "here") is UNSHAPED
    assert read_annotation(typing.Optional[Tensor], "here") is UNSHAPED  # noqa: UP045
    assert read_annotation(int, "here") is int
    assert read_annotation(None, "here") is None
    assert read_annotation(Tensor | float, "here") is None
    shaped = Shaped[Tensor, "n"]
    assert read_annotation(typing.Annotated[shaped, "note"], "here").axes == ("n",)
    assert read_annotation(Float32[Tensor, "n"] | None, "here").dtypes == ("float32",)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Float[numpy.ndarray, "n"], 'Float[ndarray, "n"] is not of torch.Tensor'),
        (Float[Tensor, "n"] | Int[Tensor, "n"], "a union of tensor types"),
        (jaxtyping.Key[Tensor, "n"], "Key has no dtype"),
    ],
)
def test_annotations_that_cannot_be_used_are_refused(annotation, message):
    with pytest.raises(KernelError) as caught:
        read_annotation(annotation, "op_ref.py:3: 'x'")
    assert str(caught.value).startswith(f"op_ref.py:3: 'x': {message}")
