"""Element types by their torch names, so that code outside the children can speak of them without torch."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["float", "complex", "int", "uint", "bool"]


@dataclass(frozen=True)
class Dtype:
    """One element type. ``name`` is torch's (``float8_e4m3fn``), ``itemsize`` is in bytes.

    ``eps`` is the distance from 1.0 to the next number (``torch.finfo(...).eps``), 0 for exact types.
    ``ctype`` passes a by-value scalar to C; None where C has no such type by value (half, bf16, fp8 go as raw bits).
    """

    name: str
    kind: Kind
    itemsize: int
    eps: float = 0.0
    ctype: Any = None


_ALL = (
    Dtype("float64", "float", 8, 2.0**-52, ctypes.c_double),
    Dtype("float32", "float", 4, 2.0**-23, ctypes.c_float),
    Dtype("float16", "float", 2, 2.0**-10),
    Dtype("bfloat16", "float", 2, 2.0**-7),
    Dtype("float8_e4m3fn", "float", 1, 2.0**-3),
    Dtype("float8_e5m2", "float", 1, 2.0**-2),
    Dtype("complex64", "complex", 8, 2.0**-23),
    Dtype("complex128", "complex", 16, 2.0**-52),
    Dtype("int8", "int", 1, ctype=ctypes.c_int8),
    Dtype("int16", "int", 2, ctype=ctypes.c_int16),
    Dtype("int32", "int", 4, ctype=ctypes.c_int32),
    Dtype("int64", "int", 8, ctype=ctypes.c_int64),
    Dtype("uint8", "uint", 1, ctype=ctypes.c_uint8),
    Dtype("uint16", "uint", 2, ctype=ctypes.c_uint16),
    Dtype("uint32", "uint", 4, ctype=ctypes.c_uint32),
    Dtype("uint64", "uint", 8, ctype=ctypes.c_uint64),
    Dtype("bool", "bool", 1, ctype=ctypes.c_bool),
)

DTYPES: dict[str, Dtype] = {d.name: d for d in _ALL}
