"""Sizes that nothing states: those of tensors without a declared shape, and the length of the reduction. Pure."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping

from ..errors import KernelError
from ..spec.model import Case, Parameter
from ..spec.place import place
from .matching import Sides
from .module import Reference
from .problem import TensorSpec
from .shapes import Scope

_WITHOUT_DIMS = 2**20


def guessed_size(scope: Scope, ptr_size: int | None) -> int:
    """Elements of a tensor of unknown shape: ``ptr_size``, else the product of the two largest integers among the dims."""
    if ptr_size:
        return ptr_size
    integers = (v for v in scope.values.values() if isinstance(v, int) and not isinstance(v, bool) and v > 0)
    largest = sorted(integers, reverse=True)[:2]
    return math.prod(largest) if largest else _WITHOUT_DIMS


def check_lanes(tensor: TensorSpec, parameter: Parameter, where: str) -> None:
    """KernelError where a vector pointer (``float4*``) does not fit the last axis of its tensor."""
    last = tensor.shape[-1] if tensor.shape else 1
    if last % parameter.lanes:
        what = f"'{parameter.spelling or parameter.name}' takes {parameter.lanes} elements at a time"
        raise KernelError(f"{where}: {what}, and the last axis of its shape {tensor.shape} is {last}")


def reduction_length(tensors: tuple[TensorSpec, ...], axes: Mapping[str, tuple[str, ...] | None]) -> int:
    """K of the tolerance formula: the longest axis of an input that no output has, else the longest axis of an input.

    Axes are told apart as they are written in the annotations (``axes``, by tensor) if all are, else by their sizes.
    """
    written = all(axes.get(t.name) is not None for t in tensors)

    def labelled(t: TensorSpec) -> list[tuple[object, int]]:
        names = axes.get(t.name) if written else None
        return list(zip(names or t.shape, t.shape, strict=False))

    kept = {label for t in tensors if t.role != "input" for label, _ in labelled(t)}
    read = [pair for t in tensors if t.role != "output" for pair in labelled(t)]
    gone = [size for label, size in read if label not in kept]
    return max([1, *gone]) if gone else max([1, *(size for _, size in read)])


def unused_dims(sides: Sides, case: Case) -> list[str]:
    """Dims of the case that neither the kernel nor anything in the reference module names: likely misspelt."""
    reference = sides.reference
    if sides.spec.takes_any or reference.takes_any:
        return []
    used = {"dtype", *(k.name.lower() for k in sides.kernel), *(p.name.lower() for p in reference.parameters)}
    for function in (reference.make_inputs, reference.flops, reference.bytes_moved):
        if function is None:
            continue
        for p in inspect.signature(function).parameters.values():
            if p.kind is p.VAR_KEYWORD:
                return []
            used.add(p.name.lower())
    used.update(word.lower() for text in _expressions(reference) for word in re.findall(r"\w+", text))
    return [name for name in case.values if name.lower() not in used]


def contradiction(sides: Sides, parameter: Parameter, text: str) -> KernelError:
    """The sentence for a pointer whose element type the reference does not allow."""
    spelling = parameter.spelling or f"{parameter.dtype} {parameter.name}"
    theirs = place(sides.reference.path, sides.reference.line)
    return KernelError(f"{sides.at(parameter)}: '{spelling}' holds {parameter.dtype}, and {theirs} declares {text}")


def _expressions(reference: Reference) -> list[str]:
    types = [p.tensor for p in reference.parameters] + list(reference.returns.types)
    return [axis for t in types for axis in t.axes or ()] + list(reference.constraints)
