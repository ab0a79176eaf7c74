"""One output against its reference: which elements are wrong, by how much, and where.

Works in pieces of at most 4 Mi elements, so that a tensor of 2^31 elements needs well under 1 GiB beside itself, on the
device where the tensors are. torch is imported inside the functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..dtypes import DTYPES
from ..errors import KernelError
from ..reference.problem import TensorSpec
from .elements import as_float64, as_int64, chunks, contiguous, overflows, parts, plain, unravel, value_text, want_text
from .picture import ErrorMap
from .tolerance import Tolerance, bound, join_moments, row_moments, row_rms

if TYPE_CHECKING:
    import torch

CHUNK = 1 << 22


@dataclass(frozen=True)
class Comparison:
    """The fields of ``records.OutputReport``, as plain values.

    ``max_abs_error`` and ``max_rel_error`` are over the elements that are finite on both sides (relative: where the
    reference is not 0), None where there is none. ``worst_ratio`` is the largest error over its bound, None for exact
    types and where it has no limit: a NaN or infinity on one side, or any error at all in a row of zeros.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    wrong: int
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    worst_ratio: float | None = None
    first_wrong: tuple[int, ...] | None = None
    got: str | None = None
    want: str | None = None
    picture: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check_form(got: object, spec: TensorSpec, device: str | None = None) -> str | None:
    """What is wrong with the form of an output, as one sentence; None when all of it is as ``spec`` says.

    Strict: exactly ``torch.Tensor``, the device where one is given, dtype, shape and strides. The stride of a dimension
    of size 1, and all of them in an empty tensor, move nothing and may be anything.
    """
    import torch

    name = f"output '{spec.name}'"
    if type(got) is not torch.Tensor:
        return f"{name} is a {type(got).__name__}, not a torch.Tensor"
    if got.layout is not torch.strided:
        return f"{name} has the layout {plain(got.layout)}, not strided"
    if device is not None and not _same_device(got.device, torch.device(device)):
        return f"{name} is on {got.device}, not on {device}"
    if plain(got.dtype) != spec.dtype:
        return f"{name} is {plain(got.dtype)}, not {spec.dtype}"
    if tuple(got.shape) != tuple(spec.shape):
        return f"{name} has the shape {tuple(got.shape)}, not {tuple(spec.shape)}"
    want = spec.strides if spec.strides is not None else contiguous(spec.shape)
    moving = [(a, b) for size, a, b in zip(spec.shape, got.stride(), want, strict=True) if size > 1]
    if got.numel() and any(a != b for a, b in moving):
        return f"{name} has the strides {tuple(got.stride())}, not {tuple(want)}"
    return None


def compare_output(
    got: torch.Tensor,
    want64: torch.Tensor,
    *,
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    tolerance: Tolerance,
) -> Comparison:
    """Compare an output that has passed ``check_form`` with the reference's result of the same shape on the same device.

    ``want64`` is float64 or complex128 for floating outputs (a lower type is raised), any integer type or bool for exact
    ones. Integers are compared exactly by value, uint64 by its 64 bits, and a bool must be the byte 0 or 1. NaN and
    infinity are right only where the reference has them, an infinity with its sign; where the reference overflows the
    output type, an infinity is right too (and, for fp8, NaN or the largest number).
    Raises KernelError where the reference's result can't be one of this output.
    """
    kind = DTYPES[dtype].kind
    if tuple(got.shape) != tuple(shape):
        raise KernelError(f"output '{name}' has the shape {tuple(got.shape)}, not {tuple(shape)}")
    if tuple(want64.shape) != tuple(shape):
        raise KernelError(f"the reference gives '{name}' the shape {tuple(want64.shape)}, not {tuple(shape)}")
    if want64.is_complex() and kind != "complex":
        raise KernelError(f"the reference gives complex numbers for '{name}', which is {dtype}")
    got, want64 = got.detach().resolve_conj().resolve_neg(), want64.detach().resolve_conj().resolve_neg()
    exact = kind in ("int", "uint", "bool")
    totals = _Totals(dtype, tuple(shape))
    rms: torch.Tensor | None = None
    for offset, index in chunks(tuple(shape), CHUNK):
        g, w = got[index], want64[index]
        if exact:
            totals.add_exact(offset, g.reshape(-1), w.reshape(-1))
            continue
        if shape and shape[-1] > CHUNK:
            rms = _long_row_rms(want64[index[:-1]], dtype) if index[-1].start == 0 else rms
        else:
            rms = row_rms(w, dtype)
        assert rms is not None
        totals.add_close(offset, g, w, rms, tolerance)
    return totals.comparison(name, got, want64, strides)


class _Totals:
    """What the pieces of one output add up to."""

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape
        self.wrong = 0
        self.worst = {"abs": -1.0, "rel": -1.0, "ratio": -1.0, "tf32": -1.0}
        self.unlimited = False
        self.counts = {"nan": 0, "inf": 0, "both": 0, "missing": 0}
        self.first: int | None = None
        self.map = ErrorMap(shape)

    def add_exact(self, offset: int, got: torch.Tensor, want: torch.Tensor) -> None:
        import torch

        g, w = as_int64(got), as_int64(want)
        if self.dtype == "bool":
            w = (w != 0).to(torch.int64)
        wrong = g != w
        if want.is_floating_point():
            whole = w.to(torch.float64) == want.to(torch.float64)
            wrong |= ~whole
        if self._locate(offset, wrong):
            fg, fw = as_float64(g, self.dtype), as_float64(w, self.dtype)
            apart = (fg - fw).abs()
            # The difference as integers where it can't overflow: float64 would lose 1 in 2^60.
            apart = torch.where(apart < 2.0**62, (g - w).abs().to(torch.float64), apart)
            self._raise("abs", apart[wrong].max())
            known = wrong & (w != 0)
            if bool(known.any()):
                self._raise("rel", (apart / fw.abs())[known].max())
        elif got.numel():
            self._raise("abs", g.new_zeros((), dtype=torch.float64))

    def add_close(self, offset: int, got: torch.Tensor, want: torch.Tensor, rms: torch.Tensor, tolerance: Tolerance) -> None:
        import torch

        limit = bound(want, self.dtype, tolerance, rms=rms)
        g, w = parts(got), parts(want)
        if got.is_complex():
            limit = limit.unsqueeze(-1)
        g_nan, w_nan = g.isnan(), w.isnan()
        beyond = overflows(g, w, limit, self.dtype)
        measured = torch.isfinite(g) & torch.isfinite(w) & ~beyond
        apart = (g - w).abs_()
        wrong = ~((measured & (apart <= limit)) | (g_nan & w_nan) | (g == w) | beyond)
        apart = torch.where(measured, apart, 0.0)
        self._count("both", g_nan & w_nan)
        if bool(measured.any()):
            self._raise("abs", apart.max())
            self._raise("ratio", torch.where(limit > 0, apart / limit, 0.0)[measured].max())
            known = measured & (w != 0)
            if bool(known.any()):
                self._raise("rel", (apart / w.abs())[known].max())
        if not self._locate(offset, wrong.any(dim=-1) if got.is_complex() else wrong):
            return
        self._count("nan", wrong & g_nan)
        self._count("inf", wrong & g.isinf())
        self._count("missing", wrong & ~torch.isfinite(w) & torch.isfinite(g))
        self.unlimited = self.unlimited or bool((wrong & ~(measured & (limit > 0))).any())
        if self.dtype == "float32" and tolerance.reduction > 1 and not tolerance.explicit and tolerance.compute is None:
            loose = bound(want, self.dtype, replace(tolerance, compute="tf32"), rms=rms)
            self._raise("tf32", torch.where(loose > 0, apart / loose, 0.0).max())

    def comparison(self, name: str, got: torch.Tensor, want: torch.Tensor, strides: tuple[int, ...] | None) -> Comparison:
        ratio = None if self.unlimited else self.worst["ratio"]
        result = Comparison(
            name=name,
            dtype=self.dtype,
            shape=self.shape,
            elements=math.prod(self.shape),
            wrong=self.wrong,
            max_abs_error=_known(self.worst["abs"]),
            max_rel_error=_known(self.worst["rel"]),
            worst_ratio=None if ratio is None else _known(ratio),
            notes=self._notes(strides),
        )
        if self.first is None:
            return result
        index = unravel(self.first, self.shape)
        shown, wanted = value_text(got[index], self.dtype), want_text(want[index], self.dtype)
        if shown == wanted:
            wanted = want_text(want[index], "complex128" if want.is_complex() else "float64")
        return replace(result, first_wrong=index, got=shown, want=wanted, picture=self.map.lines())

    def _notes(self, strides: tuple[int, ...] | None) -> tuple[str, ...]:
        notes = []
        texts = {
            "nan": "NaN where the reference is not",
            "inf": "infinite where the reference is not, or with the other sign",
            "missing": "finite where the reference is NaN or infinite",
            "both": "NaN in the reference and in the output, and count as right",
        }
        what = "parts of elements" if DTYPES[self.dtype].kind == "complex" else "elements"
        for key, text in texts.items():
            if self.counts[key]:
                notes.append(f"{self.counts[key]} {what} are {text}")
        if self.wrong and not self.unlimited and 0 <= self.worst["tf32"] <= 1:
            notes.append(
                "the errors are as large as TF32 gives: ask for full float32 (tl.dot(..., input_precision='ieee')),"
                " or declare compute='tf32' in the reference"
            )
        if self.wrong and strides is not None and strides != contiguous(self.shape):
            notes.append(f"the strides of this output are {strides}, not those of a contiguous one")
        return tuple(notes)

    def _locate(self, offset: int, wrong: torch.Tensor) -> bool:
        places = wrong.reshape(-1).nonzero().flatten()
        if not places.numel():
            return False
        if self.first is None:
            self.first = offset + int(places[0])
        self.wrong += places.numel()
        self.map.add(places + offset)
        return True

    def _count(self, key: str, mask: torch.Tensor) -> None:
        self.counts[key] += int(mask.sum())

    def _raise(self, key: str, value: torch.Tensor) -> None:
        self.worst[key] = max(self.worst[key], float(value))


def _long_row_rms(row: torch.Tensor, dtype: str) -> torch.Tensor:
    return join_moments([row_moments(row[index], dtype) for _, index in chunks(tuple(row.shape), CHUNK)])


def _known(worst: float) -> float | None:
    return worst if worst >= 0 else None


def _same_device(a: torch.device, b: torch.device) -> bool:
    return a.type == b.type and (a.index == b.index or a.type == "cpu" or b.index is None)
