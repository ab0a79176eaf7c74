"""One kernel at one case, with everything bound: what crosses from the referee to the parent and on to a candidate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..spec.model import Scalar

Role = Literal["input", "output", "inout"]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of the call, by the kernel's own parameter name. Contiguous unless ``strides`` (in elements) says otherwise."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role
    strides: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Argument:
    """One argument of the call, in the kernel's order; ``value`` and ``dtype`` are those of a by-value scalar."""

    name: str
    kind: Literal["tensor", "scalar", "stream"]
    dtype: str | None = None
    value: Scalar | None = None


@dataclass(frozen=True)
class ReferenceCall:
    """How the reference is called: ``tensors`` pairs its parameters with the names of tensors, ``scalars`` with values.

    ``returned`` names the outputs in the order in which it returns them, and ``keys`` those of the dict it returns, if it
    does; any other output is one of ``tensors``, written in place.
    """

    tensors: tuple[tuple[str, str], ...] = ()
    scalars: tuple[tuple[str, Scalar], ...] = ()
    returned: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ReferenceCall:
        return cls(
            tensors=tuple((parameter, name) for parameter, name in data["tensors"]),
            scalars=tuple((parameter, value) for parameter, value in data["scalars"]),
            returned=tuple(data["returned"]),
            keys=tuple(data["keys"]),
        )


@dataclass(frozen=True)
class Problem:
    """A case bound to a kernel.

    ``returned``: names of the outputs that a Triton entry hands back instead of writing in place.
    ``reduction``: the length K of the tolerance formula. ``flops`` and ``bytes_moved``: as declared by the reference,
    None when undeclared. ``warnings``: sentences the user should see (guessed sizes, a reference that can't do float64).
    ``call``: how the reference is called; None without one.
    """

    tensors: tuple[TensorSpec, ...]
    arguments: tuple[Argument, ...]
    returned: tuple[str, ...] = ()
    verified: bool = True
    guessed_sizes: bool = False
    reduction: int = 1
    flops: float | None = None
    bytes_moved: float | None = None
    warnings: tuple[str, ...] = ()
    call: ReferenceCall | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def tensor(self, name: str) -> TensorSpec:
        return next(tensor for tensor in self.tensors if tensor.name == name)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Problem:
        tensors = tuple(
            TensorSpec(**{**t, "shape": tuple(t["shape"]), "strides": None if t["strides"] is None else tuple(t["strides"])})
            for t in data["tensors"]
        )
        return cls(
            tensors=tensors,
            arguments=tuple(Argument(**a) for a in data["arguments"]),
            returned=tuple(data["returned"]),
            verified=data["verified"],
            guessed_sizes=data["guessed_sizes"],
            reduction=data["reduction"],
            flops=data["flops"],
            bytes_moved=data["bytes_moved"],
            warnings=tuple(data["warnings"]),
            call=None if data.get("call") is None else ReferenceCall.from_json(data["call"]),
        )
