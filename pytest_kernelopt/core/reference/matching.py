"""Which parameter of the reference is which of the kernel: by name, by name in another case, then in order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..dtypes import DTYPES
from ..errors import KernelError
from ..spec.model import KernelSpec, Parameter
from ..spec.place import place
from .module import Reference, ReferenceParameter
from .shapes import Scope, find

Setup = Mapping[str, Any]
"""What a Triton ``setup`` gave: ``{"inputs": {name: {"dtype": ..., "shape": [...]} or a scalar}, "outputs": [names]}``."""


@dataclass(frozen=True)
class Sides:
    """The two that are bound to each other, and the dims: ``kernel`` are the parameters of ``spec`` as far as they are known."""

    spec: KernelSpec
    kernel: tuple[Parameter, ...]
    reference: Reference
    scope: Scope

    @property
    def where(self) -> str:
        return place(self.spec.path, self.spec.line)

    @property
    def call(self) -> str:
        return f"{self.spec.entry}({', '.join(p.name for p in self.kernel if p.kind != 'stream')})"

    def __str__(self) -> str:
        takes = ", ".join(p.name for p in self.reference.parameters)
        return f"the kernel is {self.call}, the reference reference({takes})"

    def at(self, parameter: Parameter) -> str:
        return place(self.spec.path, parameter.line or self.spec.line)

    def unmatched(self, name: str, whose: str) -> KernelError:
        """The sentence for a tensor that has no counterpart, with the names on both sides."""
        where = self.where if whose == "kernel" else self.reference.where
        return KernelError(f"{where}: '{name}' of the {whose} binds to nothing: {self}")

    def unvalued(self, parameter: Parameter) -> KernelError:
        """The sentence for a by-value parameter of the kernel that nothing gives a value."""
        return KernelError(f"{self.scope.missing(parameter.name, self.at(parameter))}; {self}")


def kernel_parameters(spec: KernelSpec, reference: Reference | None, scope: Scope, setup: Setup | None) -> tuple[Parameter, ...]:
    """The kernel's parameters, with those that a ``**`` of a Triton entry is given.

    These are the names that ``setup`` gives, or else the reference's parameters (beside named ones only if these have names
    of the reference too) and the dims other than ``dtype``.
    """
    parameters = spec.parameters
    inputs: Mapping[str, Any] = setup["inputs"] if setup else {}
    known = [p.name for p in parameters]
    more: list[Parameter] = []
    if spec.takes_any and setup:
        more = [Parameter(name, "unknown") for name in dict.fromkeys([*inputs, *setup.get("outputs", ())]) if name not in known]
    elif spec.takes_any and reference is not None:
        theirs = [p for p in reference.parameters if not (p.has_default and p.default is None)]
        if not known or any(find(p.name, known) for p in theirs):
            more = [Parameter(p.name, _kind(p, scope)) for p in theirs if find(p.name, known) is None]
        known += [p.name for p in more]
        dims = [name for name in scope.values if name != "dtype" and find(name, known) is None]
        more += [Parameter(name, "scalar") for name in dims]
    return tuple(_told_by_setup(p, inputs) for p in (*parameters, *more))


def pair(sides: Sides) -> tuple[dict[str, str], tuple[ReferenceParameter, ...]]:
    """Pairs parameters of the reference with the kernel's; returns them with the reference's parameters.

    1. The same name. 2. The same name in another case, if only one has it. 3. What is left, in order: all of it when as much
    is left on both sides and the kinds agree; else tensors with pointers, const ones first, and scalars with scalars of
    their kind where as many are left. A dim of the case and a parameter with a default are never bound in order.
    ``**kwargs`` of a reference takes every parameter of the kernel that it does not name.
    """
    pairs: dict[str, str] = {}
    parameters = sides.reference.parameters
    for p in parameters:
        _by_exact_name(sides, p, pairs)
    for p in parameters:
        _by_similar_name(sides, p, pairs)
    if sides.reference.takes_any:
        taken = set(pairs.values())
        more = [k for k in sides.kernel if k.name not in taken and k.kind != "stream" and not _optional(k, sides.scope)]
        parameters += tuple(ReferenceParameter(k.name, "unknown") for k in more)
        pairs.update({k.name: k.name for k in more})
    _in_order(sides, parameters, pairs)
    return pairs, parameters


def settle(
    kernel: tuple[Parameter, ...], pairs: Mapping[str, str], parameters: Sequence[ReferenceParameter], scope: Scope
) -> tuple[Parameter, ...]:
    """The kernel's parameters with every kind known: an unknown one is what it is bound to, else a dim, else an output."""
    bound = {pairs[p.name]: p for p in parameters if p.name in pairs}
    settled = []
    for k in kernel:
        kind = k.kind
        if kind == "unknown" and k.name in bound:
            kind = _kind(bound[k.name], scope)
        elif kind == "unknown" and scope.has(k.name):
            kind = "scalar"
        elif kind == "unknown" and not k.has_default:
            kind = "tensor"
        if kind != "unknown":
            settled.append(replace(k, kind=kind))
    return tuple(settled)


def _told_by_setup(p: Parameter, inputs: Mapping[str, Any]) -> Parameter:
    if p.kind != "unknown" or p.name not in inputs:
        return p
    value = inputs[p.name]
    if isinstance(value, Mapping):
        return replace(p, kind="tensor")
    return replace(p, kind="scalar", default=value, has_default=True)


def _kind(p: ReferenceParameter, scope: Scope) -> Any:
    if p.kind != "unknown":
        return p.kind
    return "scalar" if scope.has(p.name) else "tensor"


def _optional(k: Parameter, scope: Scope) -> bool:
    return k.kind == "unknown" and k.has_default and not scope.has(k.name)


def _agree(p: ReferenceParameter, k: Parameter) -> bool:
    return "unknown" in (p.kind, k.kind) or p.kind == k.kind


def _by_exact_name(sides: Sides, p: ReferenceParameter, pairs: dict[str, str]) -> None:
    for k in sides.kernel:
        if k.name == p.name and k.kind != "stream":
            if not _agree(p, k):
                raise KernelError(f"{sides.at(k)}: '{k.name}' is a {k.kind} here and a {p.kind} in {sides.reference.where}")
            pairs[p.name] = k.name


def _by_similar_name(sides: Sides, p: ReferenceParameter, pairs: dict[str, str]) -> None:
    taken = set(pairs.values())
    free = [k.name for k in sides.kernel if k.name not in taken and k.kind != "stream" and _agree(p, k)]
    other = find(p.name, free) if p.name not in pairs else None
    if other is not None:
        pairs[p.name] = other


def _in_order(sides: Sides, parameters: Sequence[ReferenceParameter], pairs: dict[str, str]) -> None:
    taken, scope = set(pairs.values()), sides.scope
    left = [p for p in parameters if p.name not in pairs and not p.has_default]
    left = [p for p in left if p.kind != "unknown" or not scope.has(p.name)]
    free = [k for k in sides.kernel if k.name not in taken and k.kind != "stream" and not k.has_default]
    free = [k for k in free if k.kind == "tensor" or not scope.has(k.name)]
    if len(left) == len(free) and all(_agree(p, k) for p, k in zip(left, free, strict=True)):
        pairs.update({p.name: k.name for p, k in zip(left, free, strict=True)})
        return
    tensors = [p for p in left if p.kind != "scalar"]
    pointers = [k for k in free if k.kind != "scalar"]
    if len(tensors) < len(pointers):
        pointers.sort(key=lambda k: not k.const)
    elif len(tensors) > len(pointers):
        raise sides.unmatched(tensors[len(pointers)].name, "reference")
    pairs.update({p.name: k.name for p, k in zip(tensors, pointers, strict=False)})
    for whole in (True, False):
        mine = [p for p in left if p.kind == "scalar" and (p.scalar in (int, bool)) == whole]
        theirs = [k for k in free if k.kind == "scalar" and (DTYPES[k.dtype or "int64"].kind != "float") == whole]
        if len(mine) == len(theirs):
            pairs.update({p.name: k.name for p, k in zip(mine, theirs, strict=True)})
