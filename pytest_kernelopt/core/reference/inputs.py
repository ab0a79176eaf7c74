"""Input tensors of a problem, a function of the seed, the case and the tensor's name alone. Runs in the referee.

Two tensors never share a random stream, and a tensor's values do not depend on which others there are. The name is the
reference's where there is one, so that several backends that answer to one reference are given the same values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..dtypes import DTYPES
from ..errors import KernelError, Unavailable
from ..spec.model import Case, Scalar
from ..spec.place import place
from .calling import call_reference, reference_arguments
from .module import Reference, is_out_of_memory
from .problem import Problem, ReferenceCall, TensorSpec
from .shapes import Scope, find
from .values import dim_arguments

if TYPE_CHECKING:
    import torch

__all__ = ["call_reference", "generate", "make", "reference_arguments", "stream_seed"]

_INTEGERS = (0, 10)
_SIGNED_BYTES = (-8, 8)


def generate(problem: Problem, reference: Reference | None, case: Case, seed: int, device: str) -> dict[str, torch.Tensor]:
    """The tensors that the kernel reads (inputs and start values of inout), by the kernel's names, contiguous on ``device``.

    What ``make_inputs`` of the reference gives is taken and checked. The rest is drawn: floats and complex numbers from the
    standard normal distribution (in float32 or wider, then rounded), integers from [0, 10) since they are often indices,
    int8 from [-8, 8) since that is often a quantised number, bools evenly. Unavailable when memory runs out.
    """
    import torch

    made = checked_inputs(problem, reference, case, seed, device) if reference and reference.make_inputs else {}
    call = problem.call or ReferenceCall()
    names = {name: parameter for parameter, name in call.tensors}
    tensors = {}
    for spec in problem.tensors:
        if spec.role == "output":
            continue
        try:
            given = made.get(spec.name)
            if given is not None:
                tensors[spec.name] = _converted(given, spec, reference)
                continue
            generator = torch.Generator(device=device)
            generator.manual_seed(stream_seed(seed, case, names.get(spec.name, spec.name)))
            tensors[spec.name] = _draw(spec, generator, device)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise Unavailable(f"no memory for '{spec.name}' {spec.shape} {spec.dtype} on {device}") from error
            raise
    return tensors


def stream_seed(seed: int, case: Case, name: str) -> int:
    """The seed of one tensor's random stream: 63 bits of SHA-256 over the seed, the case's id and the name."""
    digest = hashlib.sha256("\0".join((str(seed), case.id, name)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def make(reference: Reference, scope: Scope, seed: int, device: str) -> dict[str, Any]:
    """What ``make_inputs`` returns at these dims: a dict of tensors and scalars by name. KernelError for anything else."""
    import torch

    function = reference.make_inputs
    if function is None:
        return {}
    arguments = dim_arguments(reference, "make_inputs", function, scope, {"seed": seed, "device": device})
    with torch.no_grad():
        made = reference.call("make_inputs", function, arguments)
    if not isinstance(made, Mapping) or not all(isinstance(name, str) for name in made):
        raise _wrong(reference, f"returned a {type(made).__name__} where a dict of tensors by name is meant")
    for name, value in made.items():
        if not isinstance(value, (torch.Tensor, bool, int, float, str)):
            raise _wrong(reference, f"returned a {type(value).__name__} as '{name}' where a tensor or a scalar is meant")
    return dict(made)


def checked_inputs(problem: Problem, reference: Reference, case: Case, seed: int, device: str) -> dict[str, torch.Tensor]:
    """The tensors of ``make_inputs`` by the kernel's names; KernelError for a wrong name, shape, kind of element or device."""
    import torch

    call = problem.call or ReferenceCall()
    scalars: dict[str, Scalar] = {a.name: a.value for a in problem.arguments if a.value is not None}
    scalars.update(dict(call.scalars))
    scope = Scope({**scalars, **case.values}, reference.path.name)
    tensors = {**{t.name: t.name for t in problem.tensors}, **dict(call.tensors)}
    result = {}
    for name, value in make(reference, scope, seed, device).items():
        known = find(name, tensors)
        if isinstance(value, torch.Tensor) and known is not None:
            spec = problem.tensor(tensors[known])
            _check(value, spec, name, torch.device(device), reference)
            result[spec.name] = value
        elif known is not None:
            raise _wrong(reference, f"returned a {type(value).__name__} as '{name}', which is a tensor")
        elif isinstance(value, torch.Tensor) or not scope.has(name):
            raise _wrong(reference, f"returned '{name}', and the tensors are {', '.join(tensors)}")
        elif value != scope.get(name) and not _close(value, scope.get(name)):
            raise _wrong(reference, f"returned {value} as '{name}' where {scope.get(name)} is in use: a scalar can't change")
    return result


def _check(value: torch.Tensor, spec: TensorSpec, name: str, device: torch.device, reference: Reference) -> None:
    if spec.role == "output":
        raise _wrong(reference, f"returned '{name}', an output: name it in inout = ['{name}'] if its old values matter")
    if tuple(value.shape) != spec.shape:
        raise _wrong(reference, f"returned '{name}' with the shape {tuple(value.shape)}, and {spec.shape} was declared")
    if value.device.type != device.type or (device.index is not None and value.device.index != device.index):
        raise _wrong(reference, f"returned '{name}' on {value.device} and not on {device}: create it with device=device")
    dtype = DTYPES.get(str(value.dtype).removeprefix("torch."))
    integers = ("int", "uint")
    wanted = DTYPES[spec.dtype].kind
    if dtype is None or not (dtype.kind == wanted or (dtype.kind in integers and wanted in integers)):
        raise _wrong(reference, f"returned '{name}' in {str(value.dtype).removeprefix('torch.')}, and it is {spec.dtype}")


def _converted(value: torch.Tensor, spec: TensorSpec, reference: Reference | None) -> torch.Tensor:
    """A tensor of make_inputs in the kernel's type: floats are rounded to it, integers must fit in it."""
    import torch

    wanted = getattr(torch, spec.dtype)
    value = value.detach()
    converted = value.to(wanted).contiguous()
    exact = DTYPES[spec.dtype].kind in ("int", "uint") and value.dtype is not wanted
    if exact and reference is not None and not torch.equal(converted.to(torch.int64), value.to(torch.int64)):
        raise _wrong(reference, f"returned '{spec.name}' with values that {spec.dtype} can't hold")
    return converted


def _draw(spec: TensorSpec, generator: torch.Generator, device: str) -> torch.Tensor:
    import torch

    wanted, kind = getattr(torch, spec.dtype), DTYPES[spec.dtype].kind
    if kind == "complex":
        return torch.randn(spec.shape, dtype=wanted, generator=generator, device=device)
    if kind == "float":
        wide = torch.float64 if spec.dtype == "float64" else torch.float32
        return torch.randn(spec.shape, dtype=wide, generator=generator, device=device).to(wanted)
    low, high = (0, 2) if kind == "bool" else _SIGNED_BYTES if spec.dtype == "int8" else _INTEGERS
    small = torch.int8 if wanted.itemsize == 1 else torch.int32
    drawn = torch.randint(low, high, spec.shape, dtype=small, generator=generator, device=device)
    return drawn.to(wanted)


def _close(a: Any, b: Any) -> bool:
    return not isinstance(a, str) and not isinstance(b, str) and math.isclose(a, b, rel_tol=1e-3)


def _wrong(reference: Reference, what: str) -> KernelError:
    line = getattr(getattr(reference.make_inputs, "__code__", None), "co_firstlineno", None)
    return KernelError(f"{place(reference.path, line)}: make_inputs() {what}")
