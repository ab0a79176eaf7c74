"""How far an output may lie from its reference, element by element.

The default bound follows the output's own scale and type, so that zeros never pass for a softmax over a long row and a
correct fp16 GEMM never fails for its size. torch is imported inside the functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..dtypes import DTYPES
from ..errors import KernelError

if TYPE_CHECKING:
    import torch

#: eps of what the inputs are rounded to before they are multiplied, by declared compute precision.
COMPUTE_EPS = {
    "fp64": 0.0,
    "float64": 0.0,
    "fp32": 0.0,
    "float32": 0.0,
    "ieee": 0.0,
    "tf32": 2.0**-10,
    "fp16": 2.0**-10,
    "float16": 2.0**-10,
    "bf16": 2.0**-7,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}

EPS32 = 2.0**-23
EPS64 = 2.0**-52


@dataclass(frozen=True)
class Tolerance:
    """The rule for one case: explicit ``atol``/``rtol`` where either is given, else the scale-aware bound.

    ``compute`` names the precision that inputs are multiplied in where it is lower than their own (``tf32``);
    ``reduction`` is K, the number of terms summed for one output element. ``rtol`` alone means ``atol`` 0 and the
    other way round. Integers and bools are exact whatever is given here.
    """

    atol: float | None = None
    rtol: float | None = None
    compute: str | None = None
    reduction: int = 1

    def __post_init__(self) -> None:
        for name, value in (("atol", self.atol), ("rtol", self.rtol)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise KernelError(f"{name} = {value!r} is no tolerance: give a finite number of 0 or more")
        if self.compute is not None and self.compute not in COMPUTE_EPS:
            raise KernelError(f"compute = {self.compute!r} is not known: use one of {', '.join(COMPUTE_EPS)}")
        if self.reduction < 1:
            raise KernelError(f"a reduction of length {self.reduction} makes no sense: give 1 or more")

    @property
    def explicit(self) -> bool:
        return self.atol is not None or self.rtol is not None

    def describe(self) -> str:
        """The rule in one line, for reports."""
        if self.explicit:
            return f"|error| <= {self.atol or 0:g} + {self.rtol or 0:g} * |reference|; integers and bools exact"
        low = f" + 4 eps_{self.compute}" if COMPUTE_EPS.get(self.compute or "fp32") else ""
        return (
            "|error| <= (2 eps + 16 eps32) |reference| + rms(row) (eps + eps32 (12 + 4 sqrt(K))"
            f"{low}), K = {self.reduction}; integers and bools exact"
        )


def bound(expected64: torch.Tensor, out_dtype: str, tolerance: Tolerance, *, rms: torch.Tensor | None = None) -> torch.Tensor:
    """The largest allowed absolute error of each element of an output of type ``out_dtype``.

    ``expected64`` is the reference's result in float64 or complex128 (int64 for exact types), of any shape; the answer
    is float64 of the same shape. For complex outputs it holds for each part, with the modulus for |r|. Where the
    reference is NaN or infinite the bound means nothing. ``rms`` replaces the root mean square of the rows (last
    dimension, kept) where the caller has only a piece of them.

        (2 eps_out + 16 eps_acc) |r| + rms_row(r) (eps_out + eps_acc (12 + 4 sqrt(K)) + 4 eps_in)

    eps_out is that of the output type, eps_acc that of float32 accumulation (float64 for float64 outputs), eps_in that
    of ``compute``. The first term is the rounding of the result, the second that of K terms as large as the row is:
    random rounding errors grow with sqrt(K) (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2.8). The
    constants are fitted to correct kernels (softmax, norms, sums, GELU, GEMM, attention). Where the row is not all
    zero, one step of the type's subnormals is added: no kernel can be closer than its output type is fine.
    """
    import torch

    kind = DTYPES[out_dtype].kind
    if kind in ("int", "uint", "bool"):
        return torch.zeros(expected64.shape, dtype=torch.float64, device=expected64.device)
    size = _modulus(expected64)
    if tolerance.explicit:
        return size.mul(tolerance.rtol or 0.0).add_(tolerance.atol or 0.0)
    if rms is None:
        rms = row_rms(expected64, out_dtype)
    eps = DTYPES[out_dtype].eps
    eps_acc = EPS64 if out_dtype in ("float64", "complex128") else EPS32
    eps_in = COMPUTE_EPS[tolerance.compute or "fp32"]
    row = rms * (eps + eps_acc * (12 + 4 * math.sqrt(tolerance.reduction)) + 4 * eps_in)
    row += torch.where(rms > 0, _finest(out_dtype), 0.0)
    return size.mul(2 * eps + 16 * eps_acc).add_(row)


def row_rms(expected64: torch.Tensor, out_dtype: str) -> torch.Tensor:
    """Root mean square of each row (last dimension, kept as 1; of the number itself for 0-d), over finite elements only.

    Of complex numbers, over both parts. Values beyond the output type's range count as its largest.
    """
    scale, squares, count = row_moments(expected64, out_dtype)
    return scale * (squares / count.clamp(min=1)).sqrt()


def row_moments(expected64: torch.Tensor, out_dtype: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(scale, sum of squares over scale, number of finite elements) of each row, to be joined by ``join_moments``."""
    import torch

    size = _modulus(expected64)
    if size.dim() == 0:
        size = size.reshape(1)
    finite = torch.isfinite(size)
    largest = torch.finfo(getattr(torch, out_dtype)).max
    size = torch.where(finite, size, 0.0).clamp_(max=largest)
    scale = size.amax(dim=-1, keepdim=True) if size.shape[-1] else size.new_zeros((*size.shape[:-1], 1))
    # Squares of the scaled values: those of 1e200 would overflow and let everything pass.
    squares = size.div_(torch.where(scale > 0, scale, 1.0)).square_().sum(dim=-1, keepdim=True)
    count = finite.sum(dim=-1, keepdim=True)
    if expected64.is_complex():
        count = count * 2
    if expected64.dim() == 0:
        return scale[0], squares[0], count[0]
    return scale, squares, count


def join_moments(pieces: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """The root mean square of one row from the moments of its pieces."""
    import torch

    scales, squares, counts = (torch.stack(part) for part in zip(*pieces, strict=True))
    scale = scales.amax(dim=0)
    total = (squares * (scales / torch.where(scale > 0, scale, 1.0)).square()).sum(dim=0)
    return scale * (total / counts.sum(dim=0).clamp(min=1)).sqrt()


def _modulus(expected: torch.Tensor) -> torch.Tensor:
    """|r| in float64, a tensor of its own."""
    import torch

    if expected.is_complex():
        return expected.to(torch.complex128).abs()
    return expected.to(torch.float64).abs()


def _finest(out_dtype: str) -> float:
    """The step between the smallest numbers of a type.

    For types of float32's range it is the smallest normal number: approximate functions flush what is below to zero.
    """
    import torch

    info = torch.finfo(getattr(torch, out_dtype))
    if DTYPES[out_dtype].itemsize >= 4 or out_dtype == "bfloat16":
        return float(info.tiny)
    return float(info.tiny) * DTYPES[out_dtype].eps
