"""One case of one version, from poisoned outputs to a verdict: the parent's side of the referee and the candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import KernelError
from ..isolate import worker
from ..isolate.runner import Child, ChildFailure, close_fds
from ..reference.problem import Problem, TensorSpec
from ..spec.model import Case, KernelSpec
from . import interpreter, probes, referee
from .elements import contiguous
from .probes import Finding, GuardReport, Probe

if TYPE_CHECKING:
    from ..records import Correctness

REFERENCE_SECONDS = 600.0  # for a reference and its comparison, on very large tensors; a kernel's own limit is another


@dataclass(frozen=True)
class Judging:
    """How a case is judged. ``seeds``: at least three inputs; ``first_timeout``: of the first call, which may compile or tune."""

    seeds: tuple[int, ...]
    atol: float | None
    rtol: float | None
    compute: str | None
    timeout: float
    first_timeout: float


class Trial:
    """A candidate on one case, its arguments mapped and bound, ready to be called.

    ``adopts``: the inputs are those of the candidate's own ``setup``, since no reference says otherwise.
    """

    def __init__(
        self, judge: Child, candidate: Child, spec: KernelSpec, case: Case, problem: Problem, judging: Judging, *, adopts: bool
    ) -> None:
        self.judge = judge
        self.candidate = candidate
        self.spec = spec
        self.case = case
        self.problem = problem
        self.judging = judging
        self.called = False
        self.adopts = adopts

    @property
    def mode(self) -> Literal["device", "interpreter"]:
        return "device" if self.candidate.mode == "gpu" else "interpreter"

    def map(self, sets: int) -> None:
        """Let the referee allocate ``sets`` groups of arguments and the candidate map them."""
        layouts, fds = self.judge.call_with_fds(referee.allocate, timeout=REFERENCE_SECONDS, sets=sets)
        try:
            self.candidate.call(worker.attach, timeout=self.judging.timeout, fds=fds, sets=layouts)
        finally:
            close_fds(fds)
        arguments = self.problem.to_json()["arguments"]
        self.candidate.call(
            worker.prepare, timeout=self.judging.timeout, arguments=arguments, returned=list(self.problem.returned)
        )
        if self.adopts:
            self.candidate.call(worker.adopt_setup, timeout=self.judging.timeout)
            for index in range(sets):
                self.judge.call(referee.adopt, timeout=REFERENCE_SECONDS, index=index)

    def fill(self, index: int, seed: int, pattern: probes.Pattern) -> None:
        order: dict[str, Any] = {"index": index, "seed": seed, "pattern": pattern, "generated": not self.adopts}
        self.judge.call(referee.fill, timeout=REFERENCE_SECONDS, **order)

    def call(self, index: int = 0) -> dict[str, Any]:
        """One call of the candidate. The first may compile and tune, and has a limit of its own."""
        limit = self.judging.timeout if self.called else self.judging.first_timeout
        result: dict[str, Any] = self.candidate.call(worker.call, timeout=limit, index=index)
        self.called = True
        return result

    def verdict(self, index: int = 0, *, keep: bool = False) -> dict[str, Any]:
        judging = self.judging
        result: dict[str, Any] = self.judge.call(
            referee.judge,
            timeout=REFERENCE_SECONDS,
            index=index,
            atol=judging.atol,
            rtol=judging.rtol,
            compute=judging.compute,
            keep=keep,
        )
        return result


def check_case(trial: Trial) -> tuple[Correctness, float]:
    """Every seed in turn, the first one with both poisons; ends at the first failure. Also the seconds of the first call."""
    from ..records import Correctness, OutputReport

    seconds = 0.0
    warnings = dict.fromkeys(trial.problem.warnings)
    tolerance = ""
    outputs: tuple[OutputReport, ...] = ()
    before: list[Probe] = []
    known: dict[str, Any] = {"case": trial.case.id, "mode": trial.mode, "seeds": trial.judging.seeds}

    def failed(kind: str, message: str) -> Correctness:
        about: dict[str, Any] = {"tolerance": tolerance, "outputs": outputs, "warnings": tuple(warnings)}
        record = Correctness(**known, **about, verdict="failed", kind=kind, message=message, failing_seed=seed)
        return record.model_copy(update={"message": failure_text(trial.spec, record)})

    for seed, pattern in _runs(trial.judging.seeds):
        trial.fill(0, seed, pattern)
        first = not trial.called
        try:
            result = trial.call()
        except ChildFailure as failure:
            lacking = interpreter.limit(failure) if trial.mode == "interpreter" else None
            if lacking is not None:
                return Correctness(**known, verdict="unavailable", message=lacking), seconds
            return failed(*explain(trial, failure)), seconds
        seconds = result["seconds"] if first else seconds
        found = trial.verdict(keep=seed == trial.judging.seeds[0])
        warnings.update(dict.fromkeys(found["warnings"]))
        tolerance = found["tolerance"]
        outputs = tuple(OutputReport(**comparison) for comparison in found["comparisons"])
        probed = [_probe(p) for p in found["probes"]]
        findings = [*call_findings(trial.problem, result), *probes.classify(before or probed, probed)]
        before = probed if first else []
        if findings or any(output.wrong for output in outputs):
            kind = findings[0].kind if findings else "wrong values"
            return failed(kind, "\n".join(dict.fromkeys(f.message for f in findings))), seconds
    verdict: Literal["passed", "unverified"] = "passed" if trial.problem.verified else "unverified"
    about: dict[str, Any] = {"tolerance": tolerance, "outputs": outputs, "warnings": tuple(warnings)}
    return Correctness(**known, **about, verdict=verdict), seconds


def check_timed(trial: Trial, sets: int, seed: int, timed_calls: Callable[[], object]) -> None:
    """After timing: are the answers of timed calls still right? KernelError when not.

    The contents of every set change in place, under the same pointers: of the first one element in a hundred, where nobody
    can guess, so that an answer that is kept for an input, or for an address, shows. Then ``timed_calls`` calls each once.
    """
    if trial.adopts:
        return
    for index in range(sets):
        order: dict[str, Any] = {"index": index, "seed": seed + index, "pattern": "B"}
        change = referee.fill if index else referee.perturb
        trial.judge.call(change, timeout=REFERENCE_SECONDS, **order)
    timed_calls()
    for index in range(sets):
        found = trial.verdict(index)
        findings = probes.classify([_probe(p) for p in found["probes"]])
        wrong = [f"output '{c['name']}': {c['wrong']} of {c['elements']} elements" for c in found["comparisons"] if c["wrong"]]
        if findings or wrong:
            what = "; ".join([*(finding.message for finding in findings), *wrong])
            cause = "" if index else ": the answer does not follow the input, as that of a cache keyed on part of it would not"
            raise KernelError(f"{trial.spec.path.name} is right when it is checked and wrong when it is timed{cause} ({what})")


def _runs(seeds: tuple[int, ...]) -> Iterator[tuple[int, probes.Pattern]]:
    """The first seed twice, on both poisons, so that what depends on the old content of an output shows."""
    yield seeds[0], "A"
    yield seeds[0], "B"
    for index, seed in enumerate(seeds[1:]):
        yield seed, "B" if index % 2 else "A"


def explain(trial: Trial, failure: ChildFailure) -> tuple[str, str]:
    """Kind and message of a candidate that did not return."""
    if failure.kind == "hung":
        if not trial.called and trial.spec.backend == "triton":
            return "tuning too slow", f"it was still compiling or tuning after {trial.judging.first_timeout:g} s and was killed"
        return "hung", f"it {failure}"
    if failure.kind != "raised":
        return failure.kind, "\n".join([f"it {failure}", *failure.output.strip().splitlines()[-1:]])
    where = f"{failure.where}: " if failure.where else ""
    text = str(failure).strip().splitlines() or [""]
    message = f"{where}{failure.type}: {text[0]}"
    if failure.type == "OutOfResources":
        return "resources", message
    return ("CUDA error", text[0]) if "CUDA error" in message else ("raised", message)


def call_findings(problem: Problem, result: dict[str, Any]) -> Iterator[Finding]:
    """What one call itself says is wrong: a status, a launch error, the form of what it handed back."""
    if result["launch_error"]:
        error = result["launch_error"]
        hint = ": it was built for another GPU (see --kopt-arch)" if error["code"] == 209 else ""
        yield Finding("launch failed", f"a CUDA call or launch in it failed: {error['text']} (CUDA error {error['code']}){hint}")
    if result["status"]:
        yield Finding("error status", f"it returned the status {result['status']}")
    if result["returned"] is None:
        return
    forms = {form["name"]: form for form in result["returned"]}
    if len(result["returned"]) != len(problem.returned):
        yield Finding("wrong form", f"it returned {len(forms)} results where {len(problem.returned)} are due")
        return
    for name in problem.returned:
        wrong = _form(forms.get(name), problem.tensor(name))
        if wrong:
            yield Finding("wrong form", wrong)


def _form(form: dict[str, Any] | None, spec: TensorSpec) -> str | None:
    """Count, type, dtype, shape and strides of a returned tensor, strictly."""
    if form is None:
        return f"output '{spec.name}' was not returned"
    if "dtype" not in form:
        return f"output '{spec.name}' is a {form['type']}, not a torch.Tensor"
    wanted = {"dtype": spec.dtype, "shape": list(spec.shape)}
    for what, want in wanted.items():
        if form[what] != want:
            return f"output '{spec.name}' has the {what} {form[what]}, not {want}"
    strides = spec.strides or contiguous(spec.shape)
    if any(a != b for size, a, b in zip(spec.shape, form["strides"], strides, strict=True) if size > 1) and 0 not in spec.shape:
        return f"output '{spec.name}' has the strides {form['strides']}, not {list(strides)}"
    return None


def _probe(data: dict[str, Any]) -> Probe:
    return Probe(**{**data, "guard": GuardReport(**data["guard"]) if data["guard"] else None})


def failure_text(spec: KernelSpec, record: Correctness) -> str:
    """The few lines that a failed case shows."""
    against = (
        f" differs from {spec.reference.path.name}" if record.kind == "wrong values" and spec.reference else f": {record.kind}"
    )
    lines = [f"{spec.path.name}{against} at {record.case}, seed {record.failing_seed}"]
    lines += [f"  {line}" for line in (record.message or "").splitlines()]
    for output in record.outputs:
        if not output.wrong:
            continue
        form = f"{output.dtype} {list(output.shape)}"
        lines.append(f"  output '{output.name}' ({form}): {output.wrong} of {output.elements} elements are wrong")
        errors = (
            ("worst absolute error {:.3g}", output.max_abs_error),
            ("relative {:.3g}", output.max_rel_error),
            ("{:.3g} times its bound", output.worst_ratio),
        )
        shown = [text.format(value) for text, value in errors if value is not None]
        lines += [f"  {', '.join(shown)}"] if shown else []
        if output.first_wrong is not None:
            lines.append(f"  first wrong: {list(output.first_wrong)}: got {output.got}, want {output.want}")
        lines += [f"  {line}" for line in (*output.notes, *output.picture)]
    if record.kind == "wrong values":
        lines.append(f"  allowed: {record.tolerance}")
    return "\n".join(lines)
