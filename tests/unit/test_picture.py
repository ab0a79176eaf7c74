"""The sentence names the place of the errors, and the picture shows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_kernelopt.core.verify.picture import ErrorMap, picture


def mask(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bool)


def with_errors(shape: tuple[int, ...], *places: object) -> torch.Tensor:
    wrong = mask(*shape)
    for place in places:
        wrong[place] = True  # type: ignore[index]
    return wrong


ALL = slice(None)
READINGS: list[tuple[torch.Tensor, str]] = [
    (with_errors((64, 1000), (ALL, slice(976, None))), "all of the last 24 columns"),
    (with_errors((64, 1000), (slice(5, 60), slice(976, None))), "one 55x24 tile, at row 5, column 976"),
    (with_errors((64, 1000), (slice(0, None, 3), slice(976, None))), "all errors are in every 3rd row and the last 24 columns"),
    (with_errors((8192, 8), slice(4096, None)), "every row from 4096 on"),
    (with_errors((128, 128), (slice(32, 48), slice(48, 64))), "one 16x16 tile, at row 32, column 48"),
    (with_errors((64, 64), (ALL, slice(0, None, 4))), "every 4th column"),
    (with_errors((64, 64), (ALL, slice(3, None, 4))), "every 4th column, from column 3"),
    (with_errors((64, 64), 3, 17), "whole rows 3, 17"),
    (with_errors((64, 64), 3), "whole row 3"),
    (with_errors((64, 64), slice(0, 8)), "all of the first 8 rows"),
    (with_errors((64, 64), (3, 17)), "one element, at row 3, column 17"),
    (with_errors((64, 64), (3, 17), (3, 40), (17, 2)), "all errors are in rows 3, 17 and columns 2, 17, 40"),
    (with_errors((1000,), slice(992, None)), "all errors are in the last 8 elements"),
    (with_errors((1000,), slice(400, None)), "every element from 400 on"),
    (with_errors((1000,), slice(0, None, 4)), "every 4th element"),
    (with_errors((1000,), 7), "one element, at 7"),
    (with_errors((1, 1000), (0, slice(992, None))), "all errors are in the last 8 columns"),
    (with_errors((1000, 1), slice(992, None)), "all errors are in the last 8 rows"),
    (with_errors((2, 3, 16, 16), (1, 2, slice(4, 8), slice(4, 8))), "one 4x4 tile, at row 4, column 4, in slice (1, 2) only"),
    (with_errors((2, 3, 16, 16), (..., slice(13, None))), "all of the last 3 columns, in every slice"),
    (with_errors((4, 16, 16), (slice(0, 2), 3)), "whole row 3, in 2 of 4 slices"),
]


@pytest.mark.parametrize(("wrong", "reading"), READINGS, ids=[reading for _, reading in READINGS])
def test_the_reading_names_the_place(wrong: torch.Tensor, reading: str) -> None:
    assert picture(wrong)[0] == reading


def test_errors_strewn_at_random_are_called_scattered() -> None:
    wrong = torch.rand(512, 512, generator=torch.Generator().manual_seed(1)) < 0.01
    assert picture(wrong)[0].startswith(f"scattered: {int(wrong.sum())} errors")
    assert picture(with_errors((64, 64), (ALL, slice(10, None, 4))))[0].startswith("scattered")
    line = torch.rand(5000, generator=torch.Generator().manual_seed(1)) < 0.01
    assert picture(line)[0].startswith("scattered")


def test_nothing_wrong_gives_no_picture_and_all_wrong_one_line() -> None:
    assert picture(mask(4, 4)) == ()
    assert picture(mask(0, 3)) == ()
    assert picture(~mask(4, 4)) == ("every element is wrong",)
    assert picture(~mask()) == ("the only element is wrong",)


@pytest.mark.parametrize(
    "shape", [(), (1,), (481,), (100_000,), (7, 4097), (4097, 7), (9, 49), (3, 2, 5, 70, 90), (1, 77), (77, 1)]
)
@pytest.mark.parametrize("share", [0.3, 0.001])
def test_the_picture_stays_small_and_ascii(shape: tuple[int, ...], share: float) -> None:
    wrong = torch.rand(shape, generator=torch.Generator().manual_seed(2)) < share
    lines = picture(wrong)
    assert len(lines) <= 10
    assert all(len(line) <= 48 and set(line) <= set(".+#") for line in lines[2:])
    assert all(line.isascii() for line in lines)


def test_cells_say_none_some_and_all() -> None:
    wrong = mask(16, 96)
    wrong[4:8, 64:] = True
    wrong[15, 0] = True
    drawn = picture(wrong)[2:]
    assert len(drawn) == 8
    assert drawn[2] == drawn[3] == "." * 32 + "#" * 16
    assert drawn[7] == "+" + "." * 47
    assert drawn[0] == "." * 48


def test_a_partial_cell_at_the_edge_can_be_all_wrong() -> None:
    wrong = mask(9, 49)
    wrong[:, 48] = True
    drawn = picture(wrong)[2:]
    assert {line[-1] for line in drawn} == {"#"}


def _in_pieces(wrong: torch.Tensor, size: int) -> tuple[str, ...]:
    error_map = ErrorMap(tuple(wrong.shape))
    flat = wrong.reshape(-1)
    for start in range(0, flat.numel(), size):
        error_map.add(flat[start : start + size].nonzero().flatten() + start)
    return error_map.lines()


@pytest.mark.parametrize("make", [lambda: torch.rand(3, 50, 70) < 0.2, lambda: with_errors((3, 50, 70), (1, 7))])
def test_pieces_add_up_to_the_picture_of_the_whole(make: Callable[[], torch.Tensor]) -> None:
    wrong = make()
    assert _in_pieces(wrong, 999) == picture(wrong)


def test_an_axis_of_millions_is_counted_in_blocks() -> None:
    assert picture(with_errors((5_000_000,), slice(4_000_000, None)))[0] == "all errors are in about the last 1000000 elements"
    assert picture(with_errors((5_000_000,), slice(1_000_000, None)))[0] == "every element from about 1000000 on"


def test_two_to_the_31_elements_need_no_mask() -> None:
    error_map = ErrorMap((1 << 31,))
    error_map.add(torch.arange((1 << 31) - 4096, 1 << 31))
    lines = error_map.lines()
    assert lines[0] == "all errors are in about the last 4096 elements"
    assert lines[-1].endswith("+")
    assert sum(counts.numel() for counts in error_map._counts.values()) < 1 << 21
