"""Calling the reference: on clones, in float64 when asked, in every style of giving results. Runs in the referee."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dtypes import DTYPES
from ..errors import KernelError, Unavailable
from ..spec.model import Case
from .module import Reference, is_out_of_memory
from .problem import Problem, ReferenceCall, TensorSpec

if TYPE_CHECKING:
    import torch

_EXACT = ("int", "uint", "bool")


@dataclass(frozen=True)
class Observed:
    """What one call of the reference showed: the tensors that it returned, their names, the parameters that it wrote into.

    ``dependent`` are those of ``written`` whose old values make a difference to the result.
    """

    results: tuple[torch.Tensor, ...]
    names: tuple[str, ...]
    written: frozenset[str]
    dependent: frozenset[str] = frozenset()


def call_reference(
    reference: Reference, problem: Problem, tensors: Mapping[str, torch.Tensor], case: Case, *,
    float64: bool, warnings: list[str] | None = None, device: str | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """The expected outputs by the kernel's names, contiguous, from inputs (and start values of inout) by the kernel's names.

    ``float64`` raises floating tensors to float64 and complex ones to complex128 first; a reference that can't take them is
    called in float32 and at last in the tensors' own types, and a sentence is added to ``warnings``. Results lie on
    ``device``, else where the inputs do. KernelError for what it raises and for a result that contradicts the problem,
    Unavailable when memory runs out.
    """
    floating = [t.dtype for t in problem.tensors if DTYPES[t.dtype].kind in ("float", "complex")]
    rungs: list[str | None] = ["float64"] if float64 and floating else []
    if rungs and any(DTYPES[d].itemsize < 4 for d in floating):
        rungs.append("float32")
    place = device or next((str(t.device) for t in tensors.values()), "cpu")
    refused: KernelError | Unavailable | None = None
    for rung in (*rungs, None):
        try:
            buffers = _buffers(problem, tensors, rung, place)
            versions = {name: tensor._version for name, tensor in buffers.items()}
            result = _invoke(reference, problem.call or ReferenceCall(), buffers, case, _has_indices(problem))
        except (KernelError, Unavailable) as error:
            if rung is None or _is_sticky(error):
                raise
            refused = refused or error
            continue
        if refused is not None and warnings is not None:
            used = rung or "the precision of the inputs"
            warnings.append(f"expected values were computed in {used}, not in float64: {refused}")
        expected = _collect(reference, problem, result, buffers, versions)
        return {t.name: _checked(expected[t.name], t, place, reference) for t in problem.tensors if t.role != "input"}
    raise AssertionError("the last rung returns or raises")


def reference_arguments(call: ReferenceCall, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The keyword arguments of ``reference`` for these tensors (by the kernel's names)."""
    return {**{parameter: tensors[name] for parameter, name in call.tensors}, **dict(call.scalars)}


def observe(
    reference: Reference, call: ReferenceCall, tensors: Mapping[str, torch.Tensor],
    others: Callable[[], Mapping[str, torch.Tensor]], case: Case,
) -> Observed:  # fmt: skip
    """Calls the reference once on clones, to learn what it returns and writes into.

    For one that returns nothing, each parameter that it wrote is given other old values (from ``others``) in a call of its
    own, to see whether they matter. Names are those of ``tensors``.
    """
    has_indices = any(not t.is_floating_point() for t in tensors.values())
    result, after, written = _watch(reference, call, tensors, case, has_indices)
    results, names = unpack(result, reference)
    if results or not written:
        return Observed(tuple(t.detach() for t in results), names, frozenset(written))
    alternatives = others()
    dependent = set()
    for name in written:
        _, again, _ = _watch(reference, call, {**tensors, name: alternatives[name]}, case, has_indices)
        if not all(_alike(after[other], again[other]) for other in written):
            dependent.add(name)
    return Observed((), (), frozenset(written), frozenset(dependent))


def unpack(result: Any, reference: Reference) -> tuple[list[torch.Tensor], tuple[str, ...]]:
    """What the reference returned as tensors, and their names (dict, NamedTuple), if it names them."""
    import torch

    names: tuple[str, ...] = ()
    if result is None:
        return [], ()
    if isinstance(result, Mapping):
        names, items = tuple(str(key) for key in result), list(result.values())
    elif isinstance(result, (tuple, list)):
        names, items = tuple(getattr(result, "_fields", ())), list(result)
    else:
        items = [result]
    for item in items:
        if not isinstance(item, torch.Tensor):
            raise KernelError(f"{reference.where}: reference() returned a {type(item).__name__} where a tensor is meant")
    return items, names


def _invoke(reference: Reference, call: ReferenceCall, buffers: Mapping[str, torch.Tensor], case: Case, indices: bool) -> Any:
    import torch

    def run(**arguments: Any) -> Any:
        with torch.no_grad():
            result = reference.function(**arguments)
        if any(t.is_cuda for t in buffers.values()):
            torch.cuda.synchronize()  # so that an assert on the device is laid to the reference
        return result

    try:
        return reference.call("reference", run, reference_arguments(call, buffers))
    except KernelError as error:
        out_of_range = isinstance(error.__cause__, IndexError) or "device-side assert" in str(error)
        cure = "; integers are drawn from small ranges: define make_inputs() if they are indices"
        raise KernelError(f"{error} (case {case.id}{cure if indices and out_of_range else ''})") from error.__cause__


def _collect(
    reference: Reference, problem: Problem, result: Any, buffers: Mapping[str, torch.Tensor], versions: Mapping[str, int]
) -> dict[str, torch.Tensor]:
    call = problem.call or ReferenceCall()
    returned, names = unpack(result, reference)
    if len(returned) != len(call.returned):
        due = _count(len(call.returned))
        raise KernelError(f"{reference.where}: reference() returned {_count(len(returned))}, and {due} is due")
    by_key = dict(zip(names, returned, strict=True)) if call.keys and names else {}
    if by_key and set(by_key) != set(call.keys):
        raise KernelError(f"{reference.where}: reference() returned {', '.join(names)} where {', '.join(call.keys)} are due")
    values = [by_key[key] for key in call.keys] if by_key else returned
    expected = dict(zip(call.returned, values, strict=True))
    for t in problem.tensors:
        buffer = buffers.get(t.name)
        if t.role == "input" and buffer is not None and buffer._version != versions[t.name]:
            raise KernelError(f"{reference.where}: reference() writes into its input '{t.name}': name it in inout = ['{t.name}']")
        if t.role != "input" and t.name not in expected:
            if buffer is None or (t.role == "output" and buffer._version == versions[t.name] and _untouched(buffer)):
                raise KernelError(f"{reference.where}: reference() neither returns '{t.name}' nor writes into it")
            expected[t.name] = buffer
    return expected


def _checked(value: torch.Tensor, spec: TensorSpec, device: str, reference: Reference) -> torch.Tensor:
    dtype = str(value.dtype).removeprefix("torch.")
    if tuple(value.shape) != spec.shape:
        raise KernelError(
            f"{reference.where}: reference() gives '{spec.name}' the shape {tuple(value.shape)}, and {spec.shape} was declared"
        )
    if dtype not in DTYPES or not _fits(DTYPES[dtype].kind, DTYPES[spec.dtype].kind):
        raise KernelError(f"{reference.where}: reference() gives '{spec.name}' in {dtype}, and it is {spec.dtype} in the kernel")
    return value.detach().to(device).resolve_conj().resolve_neg().contiguous()


def _fits(given: str, wanted: str) -> bool:
    return given == wanted or (given in _EXACT and wanted in (*_EXACT, "float")) or wanted == "complex"


def _buffers(problem: Problem, tensors: Mapping[str, torch.Tensor], rung: str | None, device: str) -> dict[str, torch.Tensor]:
    passed = {name for _, name in problem.call.tensors} if problem.call else set()
    try:
        return {t.name: _buffer(t, tensors, rung, device) for t in problem.tensors if t.name in passed}
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise Unavailable(f"no memory for the reference's copy of its inputs: {error}") from error
        raise


def _buffer(spec: TensorSpec, tensors: Mapping[str, torch.Tensor], rung: str | None, device: str) -> torch.Tensor:
    """A tensor of the reference's own: a clone, raised in precision, or an output filled with what no reference writes."""
    import torch

    kind = DTYPES[spec.dtype].kind
    name = {"float": rung, "complex": {"float64": "complex128", "float32": "complex64"}.get(rung or "")}.get(kind)
    wanted = getattr(torch, name or spec.dtype)
    if spec.role != "output":
        return tensors[spec.name].to(wanted, copy=True)
    empty = torch.zeros(spec.shape, dtype=wanted, device=device)
    if kind in ("float", "complex") and empty.dtype.itemsize > 1:
        empty.fill_(float("nan"))
    elif kind != "bool" and empty.numel() and empty.dim():
        empty.view(torch.uint8).fill_(0x5A)
    return empty


def _untouched(buffer: torch.Tensor) -> bool:
    import torch

    if not buffer.numel() or not buffer.dim() or buffer.dtype is torch.bool:
        return bool(buffer.numel())
    if (buffer.is_floating_point() or buffer.is_complex()) and buffer.dtype.itemsize > 1:
        return bool(torch.isnan(buffer).all())
    return bool((buffer.view(torch.uint8) == 0x5A).all())


def _watch(
    reference: Reference, call: ReferenceCall, tensors: Mapping[str, torch.Tensor], case: Case, indices: bool
) -> tuple[Any, dict[str, torch.Tensor], list[str]]:
    buffers = {name: tensor.clone() for name, tensor in tensors.items()}
    versions = {name: tensor._version for name, tensor in buffers.items()}
    result = _invoke(reference, call, buffers, case, indices)
    written = [n for n, b in buffers.items() if b._version != versions[n] or not _same_bits(b, tensors[n])]
    return result, buffers, written


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    if not a.dim():
        a, b = a[None], b[None]
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)) if a.numel() else True


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal, but for what the order of atomic additions changes."""
    import torch

    if not (a.is_floating_point() or a.is_complex()):
        return _same_bits(a, b)
    wide = torch.complex128 if a.is_complex() else torch.float64
    return torch.allclose(a.to(wide), b.to(wide), rtol=1e-4, atol=1e-6, equal_nan=True)


def _has_indices(problem: Problem) -> bool:
    return any(DTYPES[t.dtype].kind in ("int", "uint") and t.role != "output" for t in problem.tensors)


def _is_sticky(error: Exception) -> bool:
    """After an error on the device every later call fails: there is nothing to fall back to."""
    return "CUDA error" in str(error)


def _count(n: int) -> str:
    return "no tensor" if n == 0 else "1 tensor" if n == 1 else f"{n} tensors"
