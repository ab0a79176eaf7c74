"""What is wrong with a call that is not a matter of values, and a failed case in a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..isolate.replies import CallResult, Form
from ..isolate.runner import ChildFailure
from ..reference.problem import Problem, TensorSpec
from ..spec.model import KernelSpec
from .elements import contiguous
from .probes import Finding

if TYPE_CHECKING:
    from ..records import Correctness

FIRST_CALL = (
    "its first call is wrong and the next one right: a state of its own, or autotuning, which calls it several times on the "
    "same tensors (restore_value=[...] or reset_to_zero=[...] of triton.autotune puts them back)"
)
_NO_KERNEL_IMAGE = 209  # cudaErrorNoKernelImageForDevice


def no_return(failure: ChildFailure, *, tuning: bool, interpreted: bool) -> Finding:
    """A call that did not return. ``tuning``: it was the first one, in which a kernel may compile and tune."""
    if failure.kind == "hung":
        if interpreted:
            return Finding("hung", f"it {failure} in Triton's interpreter, which is slow: a smaller case, or --kopt-timeout")
        if tuning:
            return Finding("tuning too slow", f"it {failure}, while it was still compiling or tuning")
        return Finding("hung", f"it {failure}")
    if failure.kind != "raised":
        return Finding(failure.kind, "\n".join([f"it {failure}", *failure.output.strip().splitlines()[-1:]])[:1000])
    kind = "resources" if failure.type == "OutOfResources" else "CUDA error" if "CUDA error" in str(failure) else "raised"
    return Finding(kind, failure.sentence())


def of_call(problem: Problem, result: CallResult, device: str) -> Iterator[Finding]:
    """What one call itself says is wrong: a launch error, a status, the form of what it handed back."""
    if result.launch_error:
        code, text = result.launch_error
        hint = ": it was built for another GPU (see --kopt-arch)" if code == _NO_KERNEL_IMAGE else ""
        yield Finding("launch failed", f"a CUDA call or launch in it failed: {text} (CUDA error {code}){hint}")
    if result.status:
        yield Finding("error status", f"it returned the status {result.status}")
    if result.returned is None:
        return
    forms = {form.name: form for form in result.returned}
    if len(forms) != len(problem.returned) or len(result.returned) != len(problem.returned):
        due = "1 result is" if len(problem.returned) == 1 else f"{len(problem.returned)} results are"
        got = "what it returned is " + result.returned[0].type if len(forms) == 1 else f"it returned {len(result.returned)}"
        yield Finding("wrong form", f"{got}, and {due} due: {', '.join(problem.returned)}")
        return
    for name in problem.returned:
        wrong = _form(forms.get(name), problem.tensor(name), device)
        if wrong:
            yield Finding("wrong form", f"returned output '{name}' {wrong}")


def hint(kind: str, problem: Problem) -> str:
    """What a user may have meant whose kernel fails in this way; empty where nothing suggests itself."""
    if kind == "out of bounds write" and problem.guessed_sizes:
        return "the sizes of its tensors were guessed: annotate them in the reference"
    if kind == "changed its input":
        return "a tensor that it reads and writes is named in inout = [...] of the reference"
    if kind == "partly written":
        return "an output that keeps some of its old values is named in inout = [...] of the reference"
    return ""


def _form(form: Form | None, spec: TensorSpec, device: str) -> str | None:
    """Type, device, dtype, shape and strides of a returned tensor, strictly."""
    if form is None:
        return "is missing"
    if form.dtype is None:
        in_place = "; one that it writes in place is named in inout = [...] of the reference"
        return f"is {form.type}, not torch.Tensor{in_place if form.type.endswith('NoneType') else ''}"
    strides = spec.strides or contiguous(spec.shape)
    for what, got, want in (
        ("device", form.device, device),
        ("dtype", form.dtype, spec.dtype),
        ("shape", list(form.shape or ()), list(spec.shape)),
        ("strides", _meant(form.strides or (), spec), _meant(strides, spec)),
    ):
        if got != want:
            return f"has the {what} {got}, not {want}"
    return None


def _meant(strides: tuple[int, ...], spec: TensorSpec) -> list[int]:
    """Strides without those that mean nothing: of dimensions of one element, and of an empty tensor."""
    if 0 in spec.shape:
        return []
    return [stride for index, stride in enumerate(strides) if index >= len(spec.shape) or spec.shape[index] != 1]


def text(spec: KernelSpec, record: Correctness) -> str:
    """The few lines that a failed case shows; ``record.message`` is what was found beside wrong values."""
    against = (
        f" differs from {spec.reference.path.name}" if record.kind == "wrong values" and spec.reference else f": {record.kind}"
    )
    lines = [f"{spec.path.name}{against} at {record.case}, seed {record.failing_seed}"]
    lines += [f"  {line}" for line in (record.message or "").splitlines()]
    for output in record.outputs:
        if not output.wrong:
            continue
        form = f"{output.dtype} {list(output.shape)}"
        lines.append(f"  output '{output.name}' ({form}): {output.wrong} of {output.elements} elements wrong")
        errors = (
            ("worst absolute error {:.3g}", output.max_abs_error),
            ("relative {:.3g}", output.max_rel_error),
            ("{:.3g} times its bound", output.worst_ratio),
        )
        shown = [text.format(value) for text, value in errors if value]
        lines += [f"  {', '.join(shown)}"] if shown else []
        if output.first_wrong is not None:
            lines.append(f"  first wrong: {list(output.first_wrong)}: got {output.got}, want {output.want}")
        lines += [f"  {line}" for line in (*output.notes, *output.picture)]
    if record.kind == "wrong values":
        lines.append(f"  allowed: {record.tolerance}")
    return "\n".join(lines)
