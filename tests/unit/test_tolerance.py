"""The bound: correct results of every kind lie inside it, wrong ones that others let pass lie outside."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.verify.tolerance import EPS32, Tolerance, bound, join_moments, row_moments, row_rms

LOW = ["float32", "float16", "bfloat16"]


def ratio(got: torch.Tensor, want: torch.Tensor, dtype: str, reduction: int) -> float:
    limit = bound(want, dtype, Tolerance(reduction=reduction))
    return float(((got.to(torch.float64) - want).abs() / limit).max())


def seeded(*shape: int, dtype: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(11)
    return torch.randn(shape, generator=generator).to(getattr(torch, dtype))


OPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layernorm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "gelu": torch.nn.functional.gelu,
    "sum": lambda x: x.sum(-1),
    "matmul": lambda x: x @ x.T,
}


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("op", OPS)
def test_a_float32_computation_rounded_to_the_output_passes(op: str, dtype: str) -> None:
    x = seeded(48, 1000, dtype=dtype)
    got = OPS[op](x.float()).to(getattr(torch, dtype))
    assert ratio(got, OPS[op](x.double()), dtype, 1000) < 0.7


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("op", OPS)
def test_zeros_and_a_shuffled_output_fail(op: str, dtype: str) -> None:
    want = OPS[op](seeded(48, 1000, dtype=dtype).double())
    assert ratio(torch.zeros_like(want), want, dtype, 1000) > 5
    assert ratio(want.roll(1, 0), want, dtype, 1000) > 5


def test_zeros_fail_for_a_softmax_over_a_long_row_in_every_type() -> None:
    for dtype in LOW:
        want = torch.softmax(seeded(2, 393216, dtype=dtype).double(), -1)
        assert ratio(torch.zeros_like(want), want, dtype, 393216) > 5
        assert ratio(want.to(getattr(torch, dtype)), want, dtype, 393216) < 1


def test_results_below_the_normal_numbers_of_float16_pass_when_rounded() -> None:
    want = torch.rand(4, 512, dtype=torch.float64) * 1e-5
    assert ratio(want.to(torch.float16), want, "float16", 1) < 1
    assert ratio(torch.zeros_like(want), want, "float16", 1) > 10


def test_a_bfloat16_result_fails_as_float16_and_as_float32() -> None:
    want = torch.softmax(seeded(16, 1024, dtype="float32").double(), -1)
    rounded = want.to(torch.bfloat16)
    assert ratio(rounded, want, "float16", 1024) > 1.5
    assert ratio(rounded, want, "float32", 1024) > 50


def test_inputs_rounded_to_tf32_pass_only_when_declared() -> None:
    a, b = seeded(32, 1024, dtype="float32"), seeded(1024, 32, dtype="float32")
    low_a, low_b = ((x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b))
    want, got = a.double() @ b.double(), (low_a.double() @ low_b.double()).float()
    error = (got.double() - want).abs()
    assert (error > bound(want, "float32", Tolerance(reduction=1024))).any()
    assert (error <= bound(want, "float32", Tolerance(reduction=1024, compute="tf32"))).all()


def test_the_formula_is_the_published_one() -> None:
    want = torch.tensor([[3.0, -4.0]], dtype=torch.float64)
    rms = math.sqrt(12.5)
    eps = 2.0**-10
    expected = (2 * eps + 16 * EPS32) * 4 + rms * (eps + EPS32 * (12 + 4 * 8))
    assert float(bound(want, "float16", Tolerance(reduction=64))[0, 1]) == pytest.approx(expected, rel=1e-4)
    tight = bound(want, "float64", Tolerance(reduction=64))[0, 1]
    assert float(tight) == pytest.approx(2.0**-52 * (18 * 4 + rms * (1 + 12 + 32)), rel=1e-12)


def test_a_row_of_zeros_is_exact_and_its_neighbour_is_not() -> None:
    want = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    limit = bound(want, "float32", Tolerance())
    assert limit[0].tolist() == [0.0, 0.0]
    assert (limit[1] > 0).all()


def test_infinities_and_nan_do_not_loosen_their_row() -> None:
    clean = torch.tensor([[1.0, 1.0, 1.0]], dtype=torch.float64)
    dirty = torch.tensor([[1.0, math.inf, math.nan]], dtype=torch.float64)
    assert float(bound(dirty, "float32", Tolerance())[0, 0]) == pytest.approx(float(bound(clean, "float32", Tolerance())[0, 0]))
    assert row_rms(torch.full((1, 3), math.nan, dtype=torch.float64), "float32").tolist() == [[0.0]]


def test_a_value_beyond_the_type_does_not_loosen_its_row_without_limit() -> None:
    want = torch.tensor([[1.0, 1e30]], dtype=torch.float64)
    assert float(bound(want, "float16", Tolerance())[0, 0]) < 100


def test_squares_of_huge_values_do_not_overflow_the_bound() -> None:
    want = torch.full((2, 3), 1e200, dtype=torch.float64)
    assert row_rms(want, "float64").flatten().tolist() == pytest.approx([1e200, 1e200])


def test_explicit_tolerances_replace_the_formula_and_one_alone_leaves_the_other_0() -> None:
    want = torch.tensor([2.0, 0.0], dtype=torch.float64)
    assert bound(want, "float32", Tolerance(atol=0.5, rtol=0.25)).tolist() == [1.0, 0.5]
    assert bound(want, "float32", Tolerance(rtol=0.25)).tolist() == [0.5, 0.0]
    assert bound(want, "float32", Tolerance(atol=0.5)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("dtype", ["int32", "uint64", "bool"])
def test_integers_and_bools_are_exact_whatever_was_asked_for(dtype: str) -> None:
    assert bound(torch.tensor([5, 7]), dtype, Tolerance(atol=3, rtol=1)).tolist() == [0.0, 0.0]


def test_complex_bounds_use_the_modulus_and_the_rms_over_both_parts() -> None:
    want = torch.tensor([[3 + 4j, 0j]], dtype=torch.complex128)
    rms = math.sqrt(25 / 4)
    assert float(row_rms(want, "complex64")) == pytest.approx(rms)
    assert float(bound(want, "complex64", Tolerance())[0, 0]) == pytest.approx(EPS32 * (18 * 5 + rms * 17))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (2, 3, 4, 5, 6)])
def test_every_shape_has_a_bound_of_its_own_shape(shape: tuple[int, ...]) -> None:
    assert bound(torch.ones(shape, dtype=torch.float64), "bfloat16", Tolerance()).shape == shape


def test_the_rms_of_a_row_in_pieces_is_that_of_the_row() -> None:
    row = torch.randn(1000, dtype=torch.float64)
    row[500] = math.inf
    pieces = [row_moments(piece, "float32") for piece in row.split(300)]
    assert float(join_moments(pieces)) == pytest.approx(float(row_rms(row, "float32")), rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"atol": -1.0}, "atol"),
        ({"rtol": math.nan}, "rtol"),
        ({"compute": "fp12"}, "compute = 'fp12'"),
        ({"reduction": 0}, "length 0"),
    ],
)
def test_a_tolerance_that_makes_no_sense_is_refused(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(KernelError, match=says):
        Tolerance(**arguments)  # type: ignore[arg-type]


def test_the_rule_reads_as_one_line() -> None:
    assert Tolerance(atol=1e-5, rtol=1e-4).describe().startswith("|error| <= 1e-05 + 0.0001 * |reference|")
    assert "eps_tf32" in Tolerance(compute="tf32", reduction=64).describe()
    assert "K = 64" in Tolerance(compute="tf32", reduction=64).describe()
    assert "\n" not in Tolerance().describe()
