"""Binding a kernel to its reference at one case: sizes, types, directions and values of everything that is passed.

Runs in the referee. Parameters are paired as :func:`.matching.pair` says, and roles are given as :mod:`.directions` says. A
tensor's shape comes from its annotation, else from ``make_inputs``, else from ``setup``, else it is guessed. Its element type
is the pointer's, else the annotation's, else the case's ``dtype``, else float32 or int32. Where the reference alone can tell
(results without a shape, tensors written in place) it is called once, on generated inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import KernelError
from ..spec.model import Case, KernelSpec, Parameter, Scalar
from ..spec.place import place
from . import sizes
from .calling import Observed, observe
from .directions import Directions, Results, direct
from .inputs import generate, make
from .matching import Setup, Sides, kernel_parameters, pair, settle
from .module import Reference, ReferenceParameter
from .problem import Argument, Problem, ReferenceCall, TensorSpec
from .shapes import Scope, TensorType, find, shape_of
from .unverified import bind_alone
from .values import as_passed, as_python, case_dtype, check_constraints, coerce, measure, scope_of

if TYPE_CHECKING:
    import torch

_PAIRS = {("float32", 2): "complex64", ("float64", 2): "complex128"}


def bind(
    spec: KernelSpec, reference: Reference | None, case: Case, *,
    ptr_size: int | None = None, setup_shapes: Setup | None = None, device: str = "cpu",
) -> Problem:  # fmt: skip
    """The problem of this case. ``setup_shapes`` is what a Triton ``setup`` gave (see :data:`.matching.Setup`), as described
    by the candidate: names, and shapes only where the reference has none. ``device`` is where the reference is called if it
    has to be. ``ptr_size`` is the number of elements of a tensor without a shape.

    KernelError, in one sentence with the place, for a dim without a value, a name that binds to nothing, types, counts or
    shapes that contradict each other, and a case outside of the reference's ``constraints``.
    """
    scope = scope_of(spec, reference, case)
    kernel = kernel_parameters(spec, reference, scope, setup_shapes)
    if reference is None:
        return bind_alone(spec, kernel, scope, ptr_size=ptr_size, setup=setup_shapes)
    check_constraints(reference, scope, case)
    sides = Sides(spec, kernel, reference, scope)
    pairs, parameters = pair(sides)
    sides = replace(sides, kernel=settle(kernel, pairs, parameters, scope), reference=replace(reference, parameters=parameters))
    return _Binder(sides, pairs, case, ptr_size, setup_shapes, device).problem()


@dataclass
class _Binder:
    sides: Sides
    pairs: dict[str, str]
    case: Case
    ptr_size: int | None
    setup: Setup | None
    device: str
    guessed: list[str] = field(default_factory=list)
    sample: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.kernel = {k.name: k for k in self.sides.kernel}
        self.theirs = {p.name: p for p in self.sides.reference.parameters}
        self.bound = {name: parameter for parameter, name in self.pairs.items() if self._is_tensor(name)}
        self.axes: dict[str, tuple[str, ...] | None] = {}
        self.dtype = case_dtype(self.scope, place(self.sides.reference.path))

    @property
    def scope(self) -> Scope:
        return self.sides.scope

    def problem(self) -> Problem:
        arguments = self._arguments()
        values = {a.name: a.value for a in arguments if a.kind == "scalar" and a.value is not None}
        tensors = {name: self._bound_tensor(self.kernel[name], self.theirs[p]) for name, p in self.bound.items()}
        inorder = [(p, name) for p, name in self.pairs.items() if name in self.bound]
        call = ReferenceCall(tensors=tuple(inorder), scalars=tuple(self._scalars(values).items()))
        draft = Problem(tuple(tensors.values()), arguments, call=call)
        results, seen = self._results(draft)
        directions = direct(self.sides, self.bound, results)
        self._add_outputs(tensors, directions, seen)
        ordered = [tensors[n] for n in (*(k for k in self.kernel if k in tensors), *directions.handed_back)]
        specs = tuple(replace(t, role=directions.roles[t.name]) for t in ordered)
        for t in specs:
            if t.name in self.kernel and t.dtype not in _PAIRS.values():
                sizes.check_lanes(t, self.kernel[t.name], self.sides.at(self.kernel[t.name]))
        reference = self.sides.reference
        return replace(
            draft, tensors=specs, returned=directions.handed_back, guessed_sizes=bool(self.guessed),
            call=replace(call, returned=directions.returned, keys=results.names),
            reduction=sizes.reduction_length(specs, self.axes), warnings=tuple(self._warnings()),
            flops=measure(reference, "flops", reference.flops, self.scope),
            bytes_moved=measure(reference, "bytes_moved", reference.bytes_moved, self.scope),
        )  # fmt: skip

    def _is_tensor(self, name: str) -> bool:
        return name in self.kernel and self.kernel[name].kind == "tensor"

    def _arguments(self) -> tuple[Argument, ...]:
        partner = {name: parameter for parameter, name in self.pairs.items()}
        arguments = []
        for k in self.sides.kernel:
            if k.kind != "scalar":
                arguments.append(Argument(k.name, "tensor" if k.kind == "tensor" else "stream"))
                continue
            value = self._value(k.name, partner.get(k.name))
            if value is None:
                value = k.default
            if value is not None:
                arguments.append(Argument(k.name, "scalar", k.dtype, coerce(value, k.dtype, f"{self.sides.at(k)}: '{k.name}'")))
            elif not (k.has_default and self.sides.spec.backend == "triton"):
                raise self.sides.unvalued(k)
        return tuple(arguments)

    def _value(self, *names: str | None) -> Scalar | None:
        """The value of a scalar under any of its names: a dim, a default, or what ``make_inputs`` gives."""
        known = [name for name in names if name is not None]
        for name in known:
            if self.scope.has(name):
                return self.scope.get(name)
        made = self._made()
        keys = (find(name, made) for name in known)
        return next((made[key] for key in keys if key and isinstance(made[key], (bool, int, float, str))), None)

    def _scalars(self, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """What the reference's other parameters get: the value that the kernel gets, as precise as the kernel sees it."""
        scalars: dict[str, Scalar] = {}
        for p in self.theirs.values():
            name = self.pairs.get(p.name)
            if name is not None and name in self.bound:
                continue
            where = f"{self.sides.reference.where}: '{p.name}'"
            value = values.get(name) if name is not None else None
            if value is None:
                value = self._value(p.name) if self.scope.has(p.name) or not p.has_default else None
            if value is not None:
                value = as_python(value, p.scalar, where)
                scalars[p.name] = as_passed(value, self.kernel[name].dtype) if name in self.kernel else value
            elif not p.has_default:
                raise self.scope.missing(p.name, where)
        return scalars

    def _made(self) -> dict[str, Any]:
        if self.sample is None:
            self.sample = make(self.sides.reference, self.scope, 0, self.device)
        return self.sample

    def _bound_tensor(self, k: Parameter, p: ReferenceParameter) -> TensorSpec:
        where = f"{self.sides.reference.where}: '{p.name}'"
        self.axes[k.name] = p.tensor.axes
        if p.tensor.axes is not None:
            return TensorSpec(k.name, self._element(k, p.tensor), shape_of(p.tensor.axes, self.scope, where), "inout")
        given: Any = self._made().get(p.name, self._made().get(k.name))
        if hasattr(given, "shape"):
            dtype = str(given.dtype).removeprefix("torch.")
            return TensorSpec(k.name, k.dtype or dtype, tuple(given.shape), "inout")
        described = (self.setup or {}).get("inputs", {}).get(k.name)
        if isinstance(described, Mapping):
            return TensorSpec(k.name, k.dtype or described["dtype"], tuple(described["shape"]), "inout")
        self.guessed.append(k.name)
        size = sizes.guessed_size(self.scope, self.ptr_size)
        return TensorSpec(k.name, self._element(k, p.tensor), (size // k.lanes * k.lanes or k.lanes,), "inout")

    def _element(self, k: Parameter | None, t: TensorType) -> str:
        pointer = k.dtype if k else None
        as_complex = _PAIRS.get((pointer or "", k.lanes if k else 1))
        if as_complex in t.dtypes and pointer not in t.dtypes:
            return as_complex
        dtype = t.dtype(pointer, self.dtype)
        if dtype is None and k is not None:
            raise sizes.contradiction(self.sides, k, t.text)
        return dtype or t.dtypes[0]

    def _results(self, draft: Problem) -> tuple[Results, Observed | None]:
        """What the reference gives, from its annotation when that says enough, else from a call."""
        reference = self.sides.reference
        returns = reference.returns
        if returns.shaped:
            return Results(len(returns.types), returns.names), None
        if returns.style == "none" and reference.outputs is not None:
            return Results(0), None
        inputs = generate(draft, reference, self.case, 0, self.device)
        call = draft.call or ReferenceCall()
        seen = observe(reference, call, inputs, lambda: generate(draft, reference, self.case, 1, self.device), self.case)
        due = {"none": 0, "tensors": len(returns.types)}.get(returns.style, len(seen.results))
        if len(seen.results) != due:
            count = len(seen.results)
            raise KernelError(f"{reference.where}: reference() returned {count} tensors, and its annotation says {due}")
        made = self._made()
        given = {name for name, p in self.bound.items() if p in made or name in made}
        return Results(due, seen.names, seen.written, seen.dependent | (seen.written & given)), seen

    def _add_outputs(self, tensors: dict[str, TensorSpec], directions: Directions, seen: Observed | None) -> None:
        reference = self.sides.reference
        for i, name in enumerate(directions.returned):
            k = self.kernel.get(name)
            if seen is None:
                t = reference.returns.types[i]
                shape = shape_of(t.axes or (), self.scope, f"{reference.where}: the return annotation")
                new = TensorSpec(name, self._element(k, t), shape, "output")
                self.axes[name] = t.axes
            else:
                new = _seen_tensor(name, k, seen.results[i])
            old = tensors.setdefault(name, new)
            if old.shape != new.shape:
                shapes = f"is a parameter of shape {old.shape} and a result of shape {new.shape}"
                raise KernelError(f"{reference.where}: '{name}' {shapes}: {self.sides}")

    def _warnings(self) -> list[str]:
        reference = self.sides.reference
        said = [f"dim '{n}' of case {self.case.id} is used by nothing" for n in sizes.unused_dims(self.sides, self.case)]
        if self.guessed:
            names = ", ".join(self.guessed)
            said.append(f"the sizes of {names} were guessed: annotate the parameters of reference() in {reference.path.name}")
        return said


def _seen_tensor(name: str, k: Parameter | None, value: torch.Tensor) -> TensorSpec:
    dtype = str(value.dtype).removeprefix("torch.")
    pointer = k.dtype if k else None
    if k is not None and _PAIRS.get((pointer or "", k.lanes)) == dtype:
        pointer = dtype
    return TensorSpec(name, pointer or dtype, tuple(value.shape), "output")
