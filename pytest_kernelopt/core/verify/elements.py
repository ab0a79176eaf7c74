"""Elements of any type as numbers that can be compared exactly, and as text. torch is imported inside the functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..dtypes import DTYPES

if TYPE_CHECKING:
    import torch

DIGITS = {"float64": 17, "complex128": 17, "float32": 9, "complex64": 9, "float16": 5, "bfloat16": 4}
SAME_SIZE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}

Index = tuple[Any, ...]


def chunks(shape: tuple[int, ...], limit: int) -> Iterator[tuple[int, Index]]:
    """(flat offset, index) of pieces of at most ``limit`` elements, in order; rows are cut only where one is longer."""
    if not shape:
        yield 0, ()
        return
    if not math.prod(shape):
        return
    axis = next(d for d in range(len(shape)) if math.prod(shape[d + 1 :]) <= limit)
    tail = math.prod(shape[axis + 1 :])
    step = max(1, limit // tail)
    offset = 0
    for lead in itertools.product(*map(range, shape[:axis])):
        for start in range(0, shape[axis], step):
            stop = min(start + step, shape[axis])
            yield offset, (*lead, slice(start, stop))
            offset += (stop - start) * tail


def as_int64(values: torch.Tensor) -> torch.Tensor:
    """Exact integers: unsigned ones by their value (uint64 by its bits), bools by their byte, floats truncated.

    By way of the signed type of the same size, as few operations know the unsigned ones.
    """
    import torch

    name = plain(values.dtype)
    if name == "bool":
        return values.view(torch.uint8).to(torch.int64)
    if name in ("uint16", "uint32", "uint64"):
        signed = values.view(getattr(torch, SAME_SIZE[values.element_size()])).to(torch.int64)
        return signed if name == "uint64" else signed & (1 << 8 * values.element_size()) - 1
    return values.to(torch.int64)


def value_text(value: torch.Tensor, dtype: str) -> str:
    """One element (0-d) as text, with the digits that its type can tell apart; unsigned and odd bools as they are."""
    kind = DTYPES[dtype].kind
    if kind in ("int", "uint"):
        number = int(as_int64(value))
        return str(number & 0xFFFFFFFFFFFFFFFF if dtype == "uint64" else number)
    if kind == "bool":
        byte = int(as_int64(value))
        return str(bool(byte)) if byte in (0, 1) else f"0x{byte:02X} (neither 0 nor 1)"
    digits = DIGITS.get(dtype, 3)
    if kind == "complex":
        number64 = complex(value.to(dtype=torch_type("complex128")).item())
        return f"{number64.real:.{digits}g}{number64.imag:+.{digits}g}j"
    return f"{float(value.to(dtype=torch_type('float64')).item()):.{digits}g}"


def want_text(value: torch.Tensor, dtype: str) -> str:
    """The reference's element in the form of the output's: unrounded, and as it is where the types do not match."""
    kind = DTYPES[dtype].kind
    if kind == "bool" and not value.is_floating_point():
        return str(bool(int(as_int64(value))))
    if kind in ("int", "uint", "bool") and value.is_floating_point():
        return value_text(value, "float64")
    return value_text(value, dtype)


def parts(values: torch.Tensor) -> torch.Tensor:
    """float64, of complex numbers as (..., 2), both parts NaN where one is: which one is NaN is nobody's promise."""
    import torch

    if not values.is_complex():
        return values.to(torch.float64)
    pairs = torch.view_as_real(values.to(torch.complex128))
    return torch.where(pairs.isnan().any(dim=-1, keepdim=True), math.nan, pairs)


def overflows(got: torch.Tensor, want: torch.Tensor, limit: torch.Tensor, dtype: str) -> torch.Tensor:
    """Where a reference that is finite in float64 may leave the output type's range, and the output did so rightly."""
    import torch

    largest = float(torch.finfo(getattr(torch, dtype)).max)
    step = math.ldexp(DTYPES[dtype].eps, math.frexp(largest)[1] - 1)
    may = torch.isfinite(want) & (want.abs() + limit >= largest + step / 2)
    same_sign = torch.signbit(got) == torch.signbit(want)
    right = got.isinf() & same_sign
    if DTYPES[dtype].itemsize == 1:
        right |= got.isnan() | ((got.abs() == largest) & same_sign)
    return may & right


def as_float64(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """What ``as_int64`` gave for an output of type ``dtype``, in float64."""
    import torch

    floats = values.to(torch.float64)
    return torch.where(values < 0, floats + 2.0**64, floats) if dtype == "uint64" else floats


def plain(name: object) -> str:
    return str(name).removeprefix("torch.")


def torch_type(name: str) -> torch.dtype:
    import torch

    dtype: torch.dtype = getattr(torch, name)
    return dtype


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(flat // math.prod(shape[d + 1 :]) % shape[d] for d in range(len(shape)))
