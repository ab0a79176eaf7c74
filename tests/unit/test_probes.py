"""Guards and poison: every stray or missing byte is found, and the finding says what happened."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_kernelopt.core.dtypes import DTYPES
from pytest_kernelopt.core.verify import probes
from pytest_kernelopt.core.verify.probes import (
    GUARD,
    Finding,
    GuardReport,
    Pattern,
    Probe,
    check_guards,
    classify,
    count_accumulated,
    count_changed,
    count_poison,
    layout,
    poison,
    word,
    write_guards,
)

ALL = list(DTYPES)
PATTERNS: list[Pattern] = ["A", "B"]


def block_for(nbytes: int, pattern: bytes) -> tuple[torch.Tensor, int]:
    offset, total = layout(nbytes)
    block = torch.zeros(total, dtype=torch.uint8)
    write_guards(block, offset, nbytes, pattern)
    return block, offset


def poisoned(dtype: str, shape: tuple[int, ...], pattern: Pattern) -> torch.Tensor:
    flat = torch.zeros(math.prod(shape) * DTYPES[dtype].itemsize, dtype=torch.uint8)
    poison(flat, dtype, pattern)
    return flat.view(getattr(torch, dtype)).reshape(shape)


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 2 * 1024**2 - 2 * GUARD, 2 * 1024**2 - 2 * GUARD + 1, 2 * 1024**2])
def test_a_block_is_whole_pages_with_a_guard_on_each_side(nbytes: int) -> None:
    offset, total = layout(nbytes)
    assert total % (2 * 1024**2) == 0
    assert offset >= GUARD
    assert offset % 256 == 0
    assert total - offset - nbytes >= GUARD
    assert total - nbytes < 2 * 1024**2 + 2 * GUARD


@pytest.mark.parametrize("nbytes", [0, 1, 2, 4, 6, 8, 13, 4096, 4098])
@pytest.mark.parametrize("pattern", [word("uint8", "A"), word("float32", "A"), word("float64", "B"), word("float16", "A")])
def test_guards_fill_all_but_the_tensor_and_are_found_intact(nbytes: int, pattern: bytes) -> None:
    block, offset = block_for(nbytes, pattern)
    assert check_guards(block, offset, nbytes, pattern) is None
    whole = torch.tensor(list(pattern), dtype=torch.uint8).repeat(block.numel() // 8)
    whole[offset : offset + nbytes] = 0
    assert torch.equal(block, whole)


@pytest.mark.parametrize("place", [0, 1, GUARD - 1, GUARD + 100, GUARD + 101, GUARD + 4000, 2 * 1024**2 - 1])
def test_a_single_stray_byte_anywhere_is_found(place: int) -> None:
    pattern = word("float32", "A")
    block, offset = block_for(100, pattern)
    block[place] ^= 1
    report = check_guards(block, offset, 100, pattern)
    assert report is not None
    if place < offset:
        assert report == GuardReport(before=1, reach_before=offset - place)
    else:
        assert report == GuardReport(after=1, reach_after=place - offset - 100 + 1)


def test_writing_inside_the_tensor_leaves_the_guards_alone() -> None:
    pattern = word("uint8", "A")
    block, offset = block_for(100, pattern)
    block[offset : offset + 100] = 7
    assert check_guards(block, offset, 100, pattern) is None


def test_twenty_four_floats_past_the_end_read_as_96_bytes() -> None:
    block, offset = block_for(4000, word("uint8", "A"))
    block[offset + 4000 : offset + 4096] = 0
    report = check_guards(block, offset, 4000, word("uint8", "A"))
    assert report is not None
    assert report.sentence("C") == "wrote 96 bytes past the end of 'C'"


def test_the_sentence_tells_how_far_and_on_which_side() -> None:
    assert (
        GuardReport(after=4, reach_after=4096).sentence("y") == "wrote 4 bytes past the end of 'y' (as far as 4096 bytes past it)"
    )
    both = GuardReport(before=1, reach_before=1, after=8, reach_after=8)
    assert both.sentence("y") == "wrote 8 bytes past the end of 'y' and 1 byte before the start of 'y'"


@pytest.mark.parametrize("dtype", [name for name in ALL if DTYPES[name].kind in ("float", "complex")])
def test_poison_a_is_nan_and_b_a_large_finite_number(dtype: str) -> None:
    wide = torch.complex128 if DTYPES[dtype].kind == "complex" else torch.float64
    a, b = poisoned(dtype, (8,), "A").to(wide), poisoned(dtype, (8,), "B").to(wide)
    assert a.isnan().all()
    assert torch.isfinite(b).all()
    assert (b.real < -100).all()


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("dtype", ALL)
def test_elements_never_written_are_counted(dtype: str, pattern: Pattern) -> None:
    values = poisoned(dtype, (6, 7), pattern)
    flat = values.reshape(-1).view(torch.uint8)
    assert count_poison(values, dtype, pattern) == 42
    assert count_poison(flat, dtype, pattern) == 42
    values[1:3] = 1
    values[5, 6] = 0
    assert count_poison(values, dtype, pattern) == 42 - 15
    assert count_poison(values[:, ::2], dtype, pattern) == 24 - 9
    assert count_poison(values.t(), dtype, pattern) == 42 - 15
    assert count_poison(values, dtype, "B" if pattern == "A" else "A") == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_a_computed_nan_is_not_poison(dtype: str) -> None:
    values = poisoned(dtype, (16,), "A")
    assert count_poison(values + 1, dtype, "A") == 0
    assert count_poison(torch.full_like(values, math.nan), dtype, "A") == 0


def test_one_written_part_of_a_complex_number_is_written() -> None:
    values = poisoned("complex64", (4,), "A")
    torch.view_as_real(values)[1, 0] = 1
    assert count_poison(values, "complex64", "A") == 3


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 2, 2, 2, 2)])
def test_poison_is_counted_in_every_shape(shape: tuple[int, ...]) -> None:
    assert count_poison(poisoned("float32", shape, "A"), "float32", "A") == math.prod(shape)


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int32", "uint32", "int64", "uint64", "uint16", "float8_e4m3fn", "float8_e5m2"]
)
def test_a_right_value_that_looks_like_poison_does_not_count(dtype: str) -> None:
    values = poisoned(dtype, (5,), "B")
    exact = values.to(torch.float64) if DTYPES[dtype].kind == "float" else values.clone()
    exact = exact.clone()
    assert count_poison(values, dtype, "B", exact) == 0
    exact[:2] = 1
    assert count_poison(values, dtype, "B", exact) == 2


def test_large_tensors_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PIECE", 10)
    values = poisoned("float16", (7, 33), "A")
    values[3] = 1
    assert count_poison(values, "float16", "A") == 6 * 33
    assert count_changed(torch.zeros(95, dtype=torch.uint8), torch.arange(95, dtype=torch.uint8)) == 94


@pytest.mark.parametrize("dtype", [name for name in ALL if name != "bool" and not name.startswith("float8")])
def test_adding_to_what_was_there_is_told_from_writing(dtype: str) -> None:
    kind = getattr(torch, dtype)
    step = torch.arange(1, 9).to(torch.float64).to(kind)

    def added(pattern: Pattern) -> torch.Tensor:
        before = poisoned(dtype, (8,), pattern)
        if DTYPES[dtype].kind == "uint":
            signed = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[DTYPES[dtype].itemsize]
            return (before.view(signed) + step.view(signed)).view(kind)
        return before + step

    assert count_accumulated(added("A"), added("B"), dtype) == 8
    assert count_accumulated(step, step, dtype) == 0
    assert count_accumulated(poisoned(dtype, (8,), "A"), poisoned(dtype, (8,), "B"), dtype) == 0


def test_findings_read_as_sentences_with_the_gravest_first() -> None:
    found = classify(
        [
            Probe("x", "input", 16, changed=3),
            Probe("y", "output", 4096, unwritten=4096),
            Probe("z", "output", 4096, unwritten=12, guard=GuardReport(after=128, reach_after=128)),
            Probe("w", "output", 100, accumulated=100),
        ]
    )
    assert found == (
        Finding("out of bounds write", "wrote 128 bytes past the end of 'z'"),
        Finding("changed its input", "changed its input 'x' (3 bytes differ)"),
        Finding("never written", "output 'y' was never written (4096 of 4096 elements)"),
        Finding("partly written", "12 of 4096 elements of output 'z' were never written"),
        Finding(
            "accumulates into its output",
            "accumulates into its output 'w': what stood there before the call shows in 100 of 100 elements",
        ),
    )


def test_a_second_run_clears_values_that_only_looked_like_poison() -> None:
    first, second = Probe("y", "output", 256, unwritten=1), Probe("y", "output", 256, unwritten=2)
    assert classify([first], [Probe("y", "output", 256)]) == ()
    assert classify([first], [second])[0].message == "1 of 256 elements of output 'y' were never written"


def test_what_only_the_second_run_shows_counts() -> None:
    clean = Probe("y", "output", 4)
    stray = Probe("y", "output", 4, guard=GuardReport(before=2, reach_before=2))
    assert classify([clean], [stray])[0].message == "wrote 2 bytes before the start of 'y'"
    assert classify([Probe("x", "input", 4)], [Probe("x", "input", 4, changed=1)])[0].kind == "changed its input"


def test_an_inout_tensor_may_change_and_clean_probes_find_nothing() -> None:
    assert classify([Probe("acc", "inout", 4, changed=16, unwritten=4), Probe("y", "output", 4)]) == ()
