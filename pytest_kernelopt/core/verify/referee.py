"""The trusted child: it owns the memory that a candidate maps, makes the inputs, calls the reference and compares.

Functions here take the child's state first and are called by name from the parent (``Child.call``). Nothing of a candidate's
is ever loaded in this process, and expected values never lie in a block that a candidate can reach.
"""

from __future__ import annotations

import base64
import math
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dtypes import DTYPES
from ..errors import Unavailable
from ..isolate import memory
from ..isolate.child import ChildState
from ..reference.binding import bind
from ..reference.calling import call_reference
from ..reference.inputs import generate
from ..reference.module import Reference, load_reference
from ..reference.problem import Problem, ReferenceCall, TensorSpec
from ..spec.model import Case, KernelSpec
from . import compare, probes
from .tolerance import Tolerance

if TYPE_CHECKING:
    import torch

_PERTURBED = 0.001  # share of elements that a replay changes: a cache keyed on a few samples of its input misses that


@dataclass
class _Buffers:
    """One set of argument tensors: blocks, views and layouts by name, and what the inputs were before the call."""

    blocks: dict[str, memory.OwnedDeviceBlock | memory.OwnedHostBlock]
    layouts: dict[str, dict[str, Any]]
    views: dict[str, torch.Tensor]
    truth: dict[str, torch.Tensor] = field(default_factory=dict)
    pattern: probes.Pattern = "A"


@dataclass
class _Subject:
    """What is being judged: a kernel at a case."""

    spec: KernelSpec
    reference: Reference | None
    case: Case
    problem: Problem
    sets: list[_Buffers]
    kept: dict[str, torch.Tensor] = field(default_factory=dict)


def pack(spec: KernelSpec) -> str:
    """A kernel's declaration as it travels to the referee, which trusts its parent."""
    return base64.b64encode(pickle.dumps(spec)).decode()


def gives_inputs(state: ChildState, *, spec: str) -> bool:
    """Whether the reference says what the inputs are, so that a kernel's own ``setup`` has no say in them."""
    kernel: KernelSpec = pickle.loads(base64.b64decode(spec))
    if kernel.reference is None:
        return False
    reference = load_reference(kernel.reference.path)
    return reference.make_inputs is not None or any(p.tensor.axes is not None for p in reference.parameters)


def bind_case(
    state: ChildState, *, spec: str, dims: list[list[Any]], ptr_size: int | None, setup: dict[str, Any] | None
) -> dict[str, Any]:
    """Load the reference and bind it to the kernel at a case; ``Problem`` as JSON. KernelError for what does not fit."""
    kernel: KernelSpec = pickle.loads(base64.b64decode(spec))
    reference = load_reference(kernel.reference.path) if kernel.reference else None
    case = Case(tuple((name, value) for name, value in dims))
    problem = bind(kernel, reference, case, ptr_size=ptr_size, setup_shapes=setup, device=state.device)
    release(state)
    state.objects["subject"] = _Subject(kernel, reference, case, problem, [])
    return problem.to_json()


def allocate(state: ChildState, *, sets: int) -> list[list[dict[str, Any]]]:
    """Memory for ``sets`` whole groups of arguments; the layouts with which a candidate maps them."""
    subject: _Subject = state.objects["subject"]
    if state.device == "cpu":
        _require_memory(subject.problem, sets)
    for _ in range(sets):
        buffers = _Buffers({}, {}, {})
        subject.sets.append(buffers)
        for tensor in subject.problem.tensors:
            layout = _layout(tensor)
            block = buffers.blocks[tensor.name] = memory.allocate(layout.pop("total"), state.device)
            buffers.layouts[tensor.name] = layout
            buffers.views[tensor.name] = memory.view(block, layout)
    return [
        [layout | {"block": buffers.blocks[name].describe(state.outgoing)} for name, layout in buffers.layouts.items()]
        for buffers in subject.sets
    ]


def _require_memory(problem: Problem, sets: int) -> None:
    """Unavailable for a case that the host's memory can't hold: Linux would grant it, and then kill some process.

    A tensor is there twice (shared, and as it was), and twice in float64 while it is compared.
    """
    need = sets * sum(2 * math.prod(t.shape) * (DTYPES[t.dtype].itemsize + 8) for t in problem.tensors)
    free = _available_memory()
    if free is not None and need > free:
        raise Unavailable(f"this case takes about {need / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} GiB are available")


def _available_memory() -> int | None:
    """Bytes that can be taken without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _layout(tensor: TensorSpec) -> dict[str, Any]:
    import torch

    nbytes = torch.Size(tensor.shape).numel() * getattr(torch, tensor.dtype).itemsize
    offset, total = probes.layout(nbytes)
    shape = {"dtype": tensor.dtype, "shape": list(tensor.shape), "strides": tensor.strides}
    return {"name": tensor.name, "offset": offset, "nbytes": nbytes, "total": total, **shape}


def fill(state: ChildState, *, index: int, seed: int, pattern: probes.Pattern, generated: bool = True) -> None:
    """Inputs of this seed, poisoned outputs and fresh guards in one set. Without ``generated`` the inputs stay as they are."""
    subject: _Subject = state.objects["subject"]
    inputs = generate(subject.problem, subject.reference, subject.case, seed, state.device) if generated else {}
    _write(state, subject, subject.sets[index], inputs, pattern)


def perturb(state: ChildState, *, index: int, seed: int, pattern: probes.Pattern) -> None:
    """Change one element in a thousand of a set's generated inputs, in place, where nobody can guess; poison its outputs.

    Inputs of ``make_inputs`` have a structure that single elements would break: they are made anew from the seed.
    """
    import torch

    subject: _Subject = state.objects["subject"]
    buffers = subject.sets[index]
    inputs = generate(subject.problem, subject.reference, subject.case, seed, state.device)
    if subject.reference is None or subject.reference.make_inputs is None:
        for name, new in inputs.items():
            changed = torch.rand(new.shape, device=new.device) < _PERTURBED
            if new.numel():
                changed.view(-1)[seed % new.numel()] = True
            inputs[name] = torch.where(changed, new.to(buffers.truth[name].dtype), buffers.truth[name])
    _write(state, subject, buffers, inputs, pattern)


def adopt(state: ChildState, *, index: int) -> None:
    """Take what a candidate's ``setup`` wrote into the inputs as the inputs of this set."""
    subject: _Subject = state.objects["subject"]
    buffers = subject.sets[index]
    buffers.truth = {t.name: buffers.views[t.name].clone() for t in subject.problem.tensors if t.role != "output"}


def _write(
    state: ChildState, subject: _Subject, buffers: _Buffers, inputs: dict[str, torch.Tensor], pattern: probes.Pattern
) -> None:
    for tensor in subject.problem.tensors:
        block, layout = buffers.blocks[tensor.name], buffers.layouts[tensor.name]
        probes.write_guards(block.bytes, layout["offset"], layout["nbytes"], _guard(tensor, pattern))
        payload = block.bytes[layout["offset"] : layout["offset"] + layout["nbytes"]]
        if tensor.role == "output":
            probes.poison(payload, tensor.dtype, pattern)
        elif tensor.name in inputs:
            buffers.views[tensor.name].copy_(inputs[tensor.name])
            buffers.truth[tensor.name] = buffers.views[tensor.name].clone()
        else:
            buffers.views[tensor.name].copy_(buffers.truth[tensor.name])
    buffers.pattern = pattern
    _wait(state)


def _guard(tensor: TensorSpec, pattern: probes.Pattern) -> bytes:
    return probes.word(tensor.dtype, "A" if tensor.role == "input" else pattern)


def _wait(state: ChildState) -> None:
    if state.device == "cuda":
        import torch

        torch.cuda.synchronize()


def judge(
    state: ChildState, *, index: int, atol: float | None, rtol: float | None, compute: str | None, keep: bool = False
) -> dict[str, Any]:
    """After a call on one set: what the probes found and how each output compares with the reference on the same inputs.

    With ``keep`` the outputs are kept, and those of the judgement before are searched for signs of accumulation.
    """
    subject: _Subject = state.objects["subject"]
    buffers, problem = subject.sets[index], subject.problem
    _wait(state)
    warnings: list[str] = []
    expected: dict[str, torch.Tensor] = {}
    if subject.reference is not None:
        tensors = {name: value.clone() for name, value in buffers.truth.items()}
        expected = call_reference(subject.reference, problem, tensors, subject.case, float64=True, warnings=warnings)
    tolerance = Tolerance(atol=atol, rtol=rtol, compute=compute, reduction=max(1, problem.reduction))
    found = [_probe(subject, buffers, tensor, expected.get(tensor.name), keep) for tensor in problem.tensors]
    comparisons = [
        compare.compare_output(
            buffers.views[t.name],
            expected[t.name],
            name=t.name,
            dtype=t.dtype,
            shape=t.shape,
            strides=t.strides,
            tolerance=tolerance,
        )
        for t in problem.tensors
        if t.role != "input" and t.name in expected
    ]
    if keep:
        subject.kept = {t.name: buffers.views[t.name].clone() for t in problem.tensors if t.role == "output"}
    return {
        "probes": [asdict(probe) for probe in found],
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "tolerance": tolerance.describe(),
        "warnings": warnings,
    }


def _probe(subject: _Subject, buffers: _Buffers, tensor: TensorSpec, want: torch.Tensor | None, compared: bool) -> probes.Probe:
    import torch

    block, layout, view = buffers.blocks[tensor.name], buffers.layouts[tensor.name], buffers.views[tensor.name]
    guard = probes.check_guards(block.bytes, layout["offset"], layout["nbytes"], _guard(tensor, buffers.pattern))
    unwritten = changed = accumulated = 0
    if tensor.role == "output":
        unwritten = probes.count_poison(view, tensor.dtype, buffers.pattern, want)
        before = subject.kept.get(tensor.name) if compared else None
        if before is not None:
            accumulated = probes.count_accumulated(before, view, tensor.dtype)
    elif tensor.role == "input":
        now = block.bytes[layout["offset"] : layout["offset"] + layout["nbytes"]]
        changed = probes.count_changed(buffers.truth[tensor.name].contiguous().view(-1).view(torch.uint8), now)
    return probes.Probe(tensor.name, tensor.role, view.numel(), guard, unwritten, changed, accumulated)


def fetch(state: ChildState, *, index: int) -> list[dict[str, Any]]:
    """The outputs of one set, as host memory that the parent maps."""
    subject: _Subject = state.objects["subject"]
    buffers = subject.sets[index]
    _wait(state)
    return _export(state.outgoing, {t.name: buffers.views[t.name] for t in subject.problem.tensors if t.role != "input"})


def expect(state: ChildState, *, index: int) -> list[dict[str, Any]]:
    """What the reference gives on the inputs of one set, in its own precision, as host memory that the parent maps."""
    subject: _Subject = state.objects["subject"]
    assert subject.reference is not None
    tensors = {name: value.clone() for name, value in subject.sets[index].truth.items()}
    return _export(state.outgoing, call_reference(subject.reference, subject.problem, tensors, subject.case, float64=False))


def _export(outgoing: list[int], tensors: dict[str, torch.Tensor]) -> list[dict[str, Any]]:
    layouts = []
    for name, tensor in tensors.items():
        flat = tensor.detach().cpu().contiguous()
        nbytes = flat.numel() * flat.element_size()
        layout = {"name": name, "offset": 0, "nbytes": nbytes, "strides": None}
        layout |= {"dtype": str(flat.dtype).removeprefix("torch."), "shape": list(flat.shape)}
        block = memory.OwnedHostBlock(max(1, nbytes))
        memory.view(block, layout).copy_(flat)
        layouts.append(layout | {"block": block.describe(outgoing)})
        block.free()
    return layouts


def use_reference(state: ChildState) -> list[str]:
    """Make the reference what ``timing.sampling`` times in this child, on the candidate's own buffers.

    Returns the names of the tensors that a call changes and needs restored.
    """
    subject: _Subject = state.objects["subject"]
    assert subject.reference is not None
    call = subject.problem.call or ReferenceCall()
    state.objects["sets"] = [buffers.views for buffers in subject.sets]
    state.objects["calls"] = [_reference_call(subject.reference, call, views) for views in state.objects["sets"]]
    return [t.name for t in subject.problem.tensors if t.role == "inout"]


def _reference_call(reference: Reference, call: ReferenceCall, views: dict[str, torch.Tensor]) -> Callable[[], Any]:
    import torch

    arguments = {**{parameter: views[name] for parameter, name in call.tensors}, **dict(call.scalars)}

    def run() -> Any:
        with torch.no_grad():
            return reference.function(**arguments)

    return run


def release(state: ChildState) -> None:
    """Give back the memory of the case before."""
    subject: _Subject | None = state.objects.pop("subject", None)
    for name in ("targets", "calls", "sets"):
        state.objects.pop(name, None)
    if subject is None:
        return
    blocks = [block for buffers in subject.sets for block in buffers.blocks.values()]
    subject.sets.clear()
    subject.kept.clear()
    for block in blocks:
        block.free()
    if state.device == "cuda":
        import torch

        torch.cuda.empty_cache()
