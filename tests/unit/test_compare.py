"""What counts as wrong in one output, and what is said about it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import pytest
import torch

from pytest_kernelopt.core.dtypes import DTYPES
from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.records import OutputReport
from pytest_kernelopt.core.reference.problem import TensorSpec
from pytest_kernelopt.core.verify import compare
from pytest_kernelopt.core.verify.compare import Comparison, check_form, compare_output
from pytest_kernelopt.core.verify.elements import chunks
from pytest_kernelopt.core.verify.tolerance import Tolerance

EXACT = [name for name, dtype in DTYPES.items() if dtype.kind in ("int", "uint")]
CLOSE = [name for name, dtype in DTYPES.items() if dtype.kind in ("float", "complex")]


def judge(got: torch.Tensor, want: torch.Tensor, tolerance: Tolerance | None = None, **more: Any) -> Comparison:
    dtype = str(got.dtype).removeprefix("torch.")
    result = compare_output(got, want, name="y", dtype=dtype, shape=tuple(got.shape), tolerance=tolerance or Tolerance(), **more)
    OutputReport(**json.loads(json.dumps(asdict(result), allow_nan=False)))
    return result


def numbers(*values: float, dtype: str = "float32") -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).to(getattr(torch, dtype))


def want(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("dtype", CLOSE)
def test_a_rounded_reference_is_right_in_every_floating_type(dtype: str) -> None:
    complex_or_not = torch.complex128 if DTYPES[dtype].kind == "complex" else torch.float64
    exact = torch.randn(5, 40, dtype=complex_or_not, generator=torch.Generator().manual_seed(3))
    result = judge(exact.to(getattr(torch, dtype)), exact)
    assert result.wrong == 0
    assert result.worst_ratio is not None
    assert result.worst_ratio <= 1
    assert result.first_wrong is None
    assert result.picture == ()


@pytest.mark.parametrize("dtype", CLOSE)
def test_one_element_off_is_found_with_its_index_and_both_values(dtype: str) -> None:
    complex_or_not = torch.complex128 if DTYPES[dtype].kind == "complex" else torch.float64
    exact = torch.ones(3, 4, 5, dtype=complex_or_not)
    got = exact.clone()
    got[2, 1, 3] = 3.0
    result = judge(got.to(getattr(torch, dtype)), exact)
    assert (result.wrong, result.first_wrong) == (1, (2, 1, 3))
    assert result.max_abs_error == pytest.approx(2)
    assert result.max_rel_error == pytest.approx(2)
    assert result.got is not None
    assert result.got.startswith("3")
    assert result.want is not None
    assert result.want.startswith("1")
    assert result.picture[0].startswith("one element")


@pytest.mark.parametrize("dtype", EXACT)
def test_integers_one_apart_at_both_ends_of_their_range_are_wrong(dtype: str) -> None:
    bits = 8 * DTYPES[dtype].itemsize
    signed = DTYPES[dtype].kind == "int"
    top, low = (2 ** (bits - 1) - 1, -(2 ** (bits - 1))) if signed else (2**bits - 1, 0)
    right = torch.tensor([low, low + 1, top - 1, top], dtype=getattr(torch, dtype))
    assert judge(right, right.clone()).wrong == 0
    off = torch.tensor([low, low + 2, top - 1, top - 1], dtype=getattr(torch, dtype))
    result = judge(off, right, Tolerance(atol=10, rtol=1))
    assert (result.wrong, result.first_wrong, result.max_abs_error) == (2, (1,), 1)
    assert judge(off[3:], right[3:]).got == str(top - 1)
    assert judge(off[3:], right[3:]).want == str(top)


def test_int64_off_by_512_near_1e14_and_by_12345_at_1e15_is_wrong() -> None:
    right = torch.tensor([140_000_000_000_000, 10**15, 2**62 + 1])
    result = judge(right + torch.tensor([512, 12345, 1]), right)
    assert result.wrong == 3
    assert result.max_abs_error == 12345


def test_uint32_above_2_to_the_31_compares_with_an_int64_reference_and_prints_unsigned() -> None:
    right = torch.tensor([4294967295, 2147483648])
    assert judge(right.to(torch.uint32), right).wrong == 0
    result = judge(right.to(torch.uint32), torch.tensor([4294967295, 2147483647]))
    assert (result.wrong, result.got, result.want) == (1, "2147483648", "2147483647")
    assert judge(right.to(torch.uint32), torch.tensor([-1, 2147483648])).wrong == 1


def test_the_error_between_the_ends_of_int64_does_not_overflow() -> None:
    result = judge(torch.tensor([2**63 - 1]), torch.tensor([-(2**63)]))
    assert result.max_abs_error == pytest.approx(2.0**64)


def test_an_argmax_off_by_one_is_wrong_whatever_the_tolerance() -> None:
    assert judge(torch.tensor([5001], dtype=torch.int32), torch.tensor([5000]), Tolerance(rtol=1e-2)).wrong == 1


def test_an_integer_output_against_a_floating_reference_must_be_that_number() -> None:
    got = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    result = judge(got, want(1.0, 2.5, math.nan, 4.0))
    assert result.wrong == 2
    assert result.want == "2.5"


def test_a_bool_is_the_byte_0_or_1() -> None:
    got = torch.tensor([0, 1, 0xA5, 1], dtype=torch.uint8).view(torch.bool)
    result = judge(got, torch.tensor([False, True, True, False]))
    assert (result.wrong, result.first_wrong) == (2, (2,))
    assert result.got == "0xA5 (neither 0 nor 1)"
    assert result.want == "True"
    assert judge(torch.tensor([False, True]), torch.tensor([0, 7])).wrong == 0


def test_nan_everywhere_is_wrong_with_its_count_and_no_error_figures() -> None:
    result = judge(torch.full((4, 4), math.nan), torch.ones(4, 4, dtype=torch.float64))
    assert result.wrong == 16
    assert (result.max_abs_error, result.max_rel_error, result.worst_ratio) == (None, None, None)
    assert result.got == "nan"
    assert "16 elements are NaN where the reference is not" in result.notes


def test_nan_in_the_same_places_is_right_and_noted() -> None:
    result = judge(numbers(math.nan, 1), want(math.nan, 1))
    assert result.wrong == 0
    assert result.notes == ("1 elements are NaN in the reference and in the output, and count as right",)


@pytest.mark.parametrize(
    ("got", "right"),
    [(1.0, math.nan), (math.inf, math.nan), (math.nan, math.inf), (-math.inf, math.inf), (1.0, math.inf), (math.inf, 1.0)],
)
def test_a_nan_or_infinity_on_one_side_only_is_wrong(got: float, right: float) -> None:
    result = judge(numbers(got, 1), want(right, 1))
    assert (result.wrong, result.first_wrong, result.worst_ratio) == (1, (0,), None)
    assert judge(numbers(got, 1), want(right, 1), Tolerance(atol=1e30, rtol=1e30)).wrong == 1


def test_infinities_of_one_sign_are_right() -> None:
    assert judge(numbers(math.inf, -math.inf, 1), want(math.inf, -math.inf, 1)).wrong == 0


def test_a_reference_beyond_the_type_may_be_infinite_in_the_output() -> None:
    right = want(70000, -70000, 65519, 1)
    assert judge(numbers(math.inf, -math.inf, 65504, 1, dtype="float16"), right).wrong == 0
    assert judge(numbers(math.inf, -math.inf, math.inf, 1, dtype="float16"), right).wrong == 0
    assert judge(numbers(-math.inf, -math.inf, 65504, 1, dtype="float16"), right).wrong == 1
    assert judge(numbers(math.inf, -math.inf, 65504, math.inf, dtype="float16"), right).wrong == 1


def test_fp8_may_saturate_or_be_nan_beyond_its_range() -> None:
    right = want(1000, -1000, 1)
    bits = torch.tensor([0x7E, 0x7F, 0x38], dtype=torch.uint8).view(torch.float8_e4m3fn)
    result = judge(bits, right)
    assert result.wrong == 0
    assert result.worst_ratio == 0
    assert result.max_abs_error == 0
    assert judge(torch.tensor([0xFE, 0xFE, 0x7F], dtype=torch.uint8).view(torch.float8_e4m3fn), right).wrong == 2


def test_a_row_of_zeros_is_exact_and_has_no_ratio() -> None:
    result = judge(torch.tensor([[1e-30, 0], [1, 1]]), torch.tensor([[0, 0], [1, 1]], dtype=torch.float64))
    assert (result.wrong, result.worst_ratio, result.first_wrong) == (1, None, (0, 0))
    assert result.max_rel_error == 0


def test_a_dropped_imaginary_part_is_wrong() -> None:
    exact = torch.randn(4, 8, dtype=torch.complex128, generator=torch.Generator().manual_seed(1))
    result = judge(exact.real.to(torch.complex64), exact)
    assert result.wrong == 32
    assert result.got is not None
    assert result.got.endswith("+0j")


def test_complex_nan_in_either_part_is_nan() -> None:
    exact = torch.tensor([complex(math.nan, 1), 1 + 1j])
    assert judge(torch.tensor([complex(2, math.nan), 1 + 1j]), exact.to(torch.complex128)).wrong == 0


def test_a_conjugated_view_is_compared_by_its_value() -> None:
    exact = torch.tensor([1 + 2j, 3 - 4j])
    assert judge(exact.conj(), torch.tensor([1 - 2j, 3 + 4j], dtype=torch.complex128)).wrong == 0


def test_float64_is_held_to_its_own_precision() -> None:
    right = torch.rand(100, dtype=torch.float64) + 1
    assert judge(right.clone(), right).wrong == 0
    assert judge(right * (1 + 2e-8), right).wrong == 100
    assert judge(right * (1 + 2e-8), right, Tolerance(rtol=1e-9, atol=1e-12)).wrong == 100


def test_values_that_differ_beyond_their_usual_digits_print_differently() -> None:
    result = judge(numbers(1, dtype="bfloat16"), want(1.0002), Tolerance(atol=1e-6))
    assert (result.got, result.want) == ("1", "1.0002")


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (7, 9), (2, 3, 4, 5, 6)])
def test_every_shape_compares(shape: tuple[int, ...]) -> None:
    right = torch.ones(shape, dtype=torch.float64)
    result = judge(right.float(), right)
    assert (result.wrong, result.elements) == (0, math.prod(shape))
    if math.prod(shape):
        result = judge(right.float() + 1, right)
        assert result.wrong == math.prod(shape)
        assert result.first_wrong == (0,) * len(shape)
    assert judge(right.int(), right.long()).wrong == 0


def test_strided_outputs_compare_by_logical_index_and_show_their_strides() -> None:
    right = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    got = right.float().t().contiguous().t()
    assert judge(got, right, strides=(1, 3)).wrong == 0
    result = judge(right.float().reshape(4, 3).t(), right, strides=(1, 3))
    assert result.wrong
    assert "the strides of this output are (1, 3), not those of a contiguous one" in result.notes


def test_a_tail_bug_reads_as_one() -> None:
    right = torch.rand(32, 1000, dtype=torch.float64) + 1
    got = right.float()
    got[:, 976:] = 0
    assert judge(got, right).picture[0] == "all of the last 24 columns"


def test_errors_as_large_as_tf32_gives_are_named_as_such() -> None:
    generator = torch.Generator().manual_seed(5)
    a, b = torch.randn(32, 1024, generator=generator), torch.randn(1024, 32, generator=generator)
    low_a, low_b = ((x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b))
    right = a.double() @ b.double()
    result = judge((low_a.double() @ low_b.double()).float(), right, Tolerance(reduction=1024))
    assert result.wrong
    assert any("TF32" in note for note in result.notes)
    assert not any("TF32" in note for note in judge(right.float() * 1.1, right, Tolerance(reduction=1024)).notes)


def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(9)
    right = torch.randn(3, 5, 211, dtype=torch.float64, generator=generator)
    right[1, 2] = 0
    got = right.float()
    got[1, 3:, 100:] *= 1.001
    whole = judge(got, right)
    for size in (1000, 211, 50):
        monkeypatch.setattr(compare, "CHUNK", size)
        pieces = judge(got, right)
        assert pieces.worst_ratio == pytest.approx(whole.worst_ratio, rel=1e-9)
        assert {**asdict(pieces), "worst_ratio": None} == {**asdict(whole), "worst_ratio": None}


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (1, 1, 100), (100, 1), (5, 0)])
@pytest.mark.parametrize("limit", [1, 4, 7, 20, 1000])
def test_chunks_cover_every_element_once_and_in_order(shape: tuple[int, ...], limit: int) -> None:
    values = torch.arange(math.prod(shape)).reshape(shape)
    seen = []
    for offset, index in chunks(shape, limit):
        piece = values[index].reshape(-1)
        assert 0 < piece.numel() <= limit
        assert piece[0] == offset
        seen += piece.tolist()
    assert seen == list(range(math.prod(shape)))


def test_a_reference_of_another_shape_or_kind_is_the_users_mistake() -> None:
    with pytest.raises(KernelError, match=r"the reference gives 'y' the shape \(3,\), not \(2,\)"):
        judge(torch.ones(2), torch.ones(3, dtype=torch.float64))
    with pytest.raises(KernelError, match="complex numbers for 'y', which is float32"):
        judge(torch.ones(2), torch.ones(2, dtype=torch.complex128))


class Odd(torch.Tensor):
    pass


FORMS: list[tuple[object, str | None]] = [
    (torch.ones(2, 3), None),
    ([1.0], "output 'y' is a list, not a torch.Tensor"),
    (torch.ones(2, 3).as_subclass(Odd), "output 'y' is a Odd, not a torch.Tensor"),
    (torch.ones(2, 3).to_sparse(), "output 'y' has the layout sparse_coo, not strided"),
    (torch.ones(2, 3, device="meta"), "output 'y' is on meta, not on cpu"),
    (torch.ones(2, 3, dtype=torch.float16), "output 'y' is float16, not float32"),
    (torch.ones(3, 2), "output 'y' has the shape (3, 2), not (2, 3)"),
    (torch.ones(3, 2).t(), "output 'y' has the strides (1, 2), not (3, 1)"),
]


@pytest.mark.parametrize(("got", "sentence"), FORMS, ids=[str(sentence) for _, sentence in FORMS])
def test_the_form_of_an_output_is_checked_strictly(got: object, sentence: str | None) -> None:
    assert check_form(got, TensorSpec("y", "float32", (2, 3), "output"), "cpu") == sentence


def test_strides_that_move_nothing_may_be_anything() -> None:
    one = torch.ones(6).as_strided((1, 3), (17, 1))
    assert check_form(one, TensorSpec("y", "float32", (1, 3), "output")) is None
    empty = torch.ones(0, 3).t()
    assert check_form(empty, TensorSpec("y", "float32", (3, 0), "output")) is None


def test_declared_strides_are_the_ones_asked_for() -> None:
    spec = TensorSpec("y", "float32", (2, 3), "output", strides=(1, 2))
    assert check_form(torch.ones(3, 2).t(), spec) is None
    assert check_form(torch.ones(2, 3), spec) == "output 'y' has the strides (3, 1), not (1, 2)"
