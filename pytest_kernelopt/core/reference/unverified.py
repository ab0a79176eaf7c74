"""A kernel without a reference: tensors of a guessed size, and results that nothing is compared with."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import KernelError
from ..spec.model import KernelSpec, Parameter
from ..spec.place import place
from .matching import Setup
from .problem import Argument, Problem, Role, TensorSpec
from .shapes import Scope
from .sizes import guessed_size, reduction_length
from .values import case_dtype, coerce


def bind_alone(
    spec: KernelSpec, kernel: tuple[Parameter, ...], scope: Scope, *, ptr_size: int | None, setup: Setup | None
) -> Problem:
    """A problem with ``verified`` false. A Triton kernel needs a ``setup`` that names its outputs."""
    looked = f" (looked for {', '.join(spec.looked_for)})" if spec.looked_for else ""
    where = place(spec.path, spec.line)
    if spec.backend == "triton" and setup is None:
        raise KernelError(f"{where}: {spec.entry}() has no reference{looked} and no setup(), so its inputs are unknown")
    outputs = list(setup.get("outputs", ())) if setup else []
    if setup is not None and not outputs:
        raise KernelError(f"{where}: setup() names no outputs, and there is no reference{looked} that does")
    described = setup["inputs"] if setup else {}
    absent = [name for name in outputs if not isinstance(described.get(name), Mapping)]
    if absent:
        raise KernelError(f"{where}: '{absent[0]}' in the outputs of setup() is no tensor of its inputs")
    arguments, tensors = [], []
    for k in kernel:
        at = f"{place(spec.path, k.line or spec.line)}: '{k.name}'"
        given = described.get(k.name)
        if isinstance(given, Mapping):
            role: Role = "output" if k.name in outputs else "input"
            tensors.append(TensorSpec(k.name, given["dtype"], tuple(given["shape"]), role))
            arguments.append(Argument(k.name, "tensor"))
        elif k.kind == "tensor":
            tensors.append(_guessed(k, scope, ptr_size, at))
            arguments.append(Argument(k.name, "tensor"))
        elif k.kind == "stream":
            arguments.append(Argument(k.name, "stream"))
        elif scope.has(k.name) or k.default is not None:
            value = scope.get(k.name) if scope.has(k.name) else k.default
            arguments.append(Argument(k.name, "scalar", k.dtype, coerce(value, k.dtype, at) if value is not None else None))
        elif not (k.has_default and spec.backend == "triton"):
            raise scope.missing(k.name, at)
    warnings = [f"unverified: there is no reference{looked}"]
    if setup is None and tensors:
        warnings.append(f"the sizes of {', '.join(t.name for t in tensors)} were guessed")
    return Problem(
        tuple(tensors), tuple(arguments), verified=False, guessed_sizes=setup is None,
        reduction=reduction_length(tuple(tensors), {}), warnings=tuple(warnings),
    )  # fmt: skip


def _guessed(k: Parameter, scope: Scope, ptr_size: int | None, at: str) -> TensorSpec:
    dtype = k.dtype or case_dtype(scope, at)
    if dtype is None:
        raise KernelError(f"{at} has no element type: a reference (or the dim dtype) gives it")
    size = guessed_size(scope, ptr_size)
    return TensorSpec(k.name, dtype, (size // k.lanes * k.lanes or k.lanes,), "input" if k.const else "output")
