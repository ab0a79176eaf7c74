"""One case of one version, from poisoned outputs to a verdict: the parent's side of the referee and the candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import KernelError
from ..isolate import replies, worker
from ..isolate.protocol import close_fds
from ..isolate.replies import CallResult
from ..isolate.runner import Child, ChildFailure
from ..reference.problem import Problem
from ..spec.model import Case, KernelSpec
from . import failure as failures
from . import interpreter, probes, referee
from .judge import Judge
from .probes import Finding, GuardReport, Pattern, Probe

if TYPE_CHECKING:
    from ..records import Correctness, OutputReport


@dataclass(frozen=True)
class Judging:
    """How a case is judged. ``seeds``: at least three inputs; ``first_timeout``: of the first call, which may compile or tune."""

    seeds: tuple[int, ...]
    atol: float | None
    rtol: float | None
    compute: str | None
    timeout: float
    first_timeout: float


@dataclass
class Trial:
    """A candidate on one case, ready to be called once ``map`` was.

    ``adopts``: the inputs are those of the candidate's own ``setup``, since no reference says otherwise.
    """

    judge: Judge
    candidate: Child
    spec: KernelSpec
    case: Case
    problem: Problem
    judging: Judging
    adopts: bool
    called: bool = False

    @property
    def mode(self) -> Literal["device", "interpreter"]:
        return "device" if self.candidate.mode == "gpu" else "interpreter"

    def map(self, sets: int) -> None:
        """Let the referee allocate ``sets`` groups of arguments, and the candidate map them and bind its calls to them."""
        limit = self.judging.timeout
        layouts, fds = self.judge.ask_with_fds(referee.allocate, sets=sets)
        try:
            self.candidate.call(worker.attach, timeout=limit, fds=fds, sets=layouts)
        finally:
            close_fds(fds)
        arguments = self.problem.to_json()["arguments"]
        self.candidate.call(worker.prepare, timeout=limit, arguments=arguments, returned=list(self.problem.returned))
        if self.adopts:
            self.candidate.call(worker.adopt_setup, timeout=limit)
            for index in range(sets):
                self.judge.ask(referee.adopt, index=index)

    def fill(self, index: int, seed: int, pattern: Pattern) -> None:
        """Inputs of this seed and poisoned outputs in one group."""
        self.judge.ask(referee.fill, index=index, seed=seed, pattern=pattern, generated=not self.adopts)

    def call(self, index: int = 0) -> CallResult:
        """One call of the candidate. The first may compile and tune, and has a limit of its own."""
        limit = self.judging.timeout if self.called else self.judging.first_timeout
        reply = self.candidate.call(worker.call, timeout=limit, index=index)
        self.called = True
        return replies.call_result(reply)

    def findings(self, result: CallResult) -> list[Finding]:
        """What the call itself says is wrong."""
        return list(failures.of_call(self.problem, result, "cuda" if self.mode == "device" else "cpu"))

    def no_return(self, failure: ChildFailure) -> Finding:
        """A call that did not return, in words."""
        interpreted = self.mode == "interpreter"
        return failures.no_return(failure, tuning=not self.called and self.spec.backend == "triton", interpreted=interpreted)

    def verdict(self, index: int = 0, *, keep: bool = False) -> dict[str, Any]:
        """What the referee finds after a call on one group: as ``referee.judge``."""
        about = {"atol": self.judging.atol, "rtol": self.judging.rtol, "compute": self.judging.compute}
        verdict: dict[str, Any] = self.judge.ask(referee.judge, index=index, keep=keep, **about)
        return verdict


@dataclass(frozen=True)
class _Run:
    """One call on poisoned outputs, and what was found."""

    findings: list[Finding]
    probes: list[Probe]
    outputs: tuple[OutputReport, ...]
    tolerance: str
    warnings: list[str]
    seconds: float

    @property
    def wrong(self) -> bool:
        return any(output.wrong for output in self.outputs)


def check_case(trial: Trial) -> tuple[Correctness, float]:
    """Every seed in turn, the first one with both poisons; ends at the first failure. Also the seconds of the first call."""
    from ..records import Correctness

    seeds = trial.judging.seeds
    known: dict[str, Any] = {"case": trial.case.id, "mode": trial.mode, "seeds": seeds}
    warnings = dict.fromkeys(trial.problem.warnings)
    seconds: float | None = None
    runs: list[_Run] = []
    for index, seed in enumerate(seeds):
        try:
            runs = _runs(trial, seed, ("A", "B") if index == 0 else ("B",) if index % 2 else ("A",))
            kind, message = _verdict(runs)
        except ChildFailure as failure:
            lacking = interpreter.limit(failure) if trial.mode == "interpreter" else None
            if lacking is not None:
                return Correctness(**known, verdict="unavailable", message=lacking), 0.0
            finding = trial.no_return(failure)
            runs, kind, message = [], finding.kind, finding.message
        warnings.update(dict.fromkeys(warning for run in runs for warning in run.warnings))
        seconds = runs[0].seconds if seconds is None and runs else seconds
        if kind is not None:
            break
    shown = next((run for run in runs if run.wrong), runs[-1]) if runs else None
    about: dict[str, Any] = {
        "tolerance": shown.tolerance if shown else "",
        "outputs": shown.outputs if shown else (),
        "warnings": tuple(warnings),
    }
    if kind is None:
        verdict: Literal["passed", "unverified"] = "passed" if trial.problem.verified else "unverified"
        return Correctness(**known, **about, verdict=verdict), seconds or 0.0
    message = "\n".join(filter(None, (message, failures.hint(kind, trial.problem))))
    record = Correctness(**known, **about, verdict="failed", kind=kind, message=message, failing_seed=seed)
    return record.model_copy(update={"message": failures.text(trial.spec, record)}), seconds or 0.0


def _runs(trial: Trial, seed: int, patterns: Sequence[Pattern]) -> list[_Run]:
    """One call for each poison on the same inputs. The second is made even when the first is wrong: the two together tell
    what was never written from what was computed, and what depends on the old content of an output."""
    runs: list[_Run] = []
    for pattern in patterns:
        trial.fill(0, seed, pattern)
        try:
            result = trial.call()
        except ChildFailure:
            if runs and runs[0].wrong:
                break  # what the first call showed is more than that
            raise
        runs.append(_found(trial, result, keep=len(patterns) > 1))
        if runs[-1].findings:
            break
    return runs


def _found(trial: Trial, result: CallResult, *, keep: bool) -> _Run:
    from ..records import OutputReport

    found = trial.verdict(keep=keep)
    outputs = tuple(OutputReport(**comparison) for comparison in found["comparisons"])
    probed = [_probe(probe) for probe in found["probes"]]
    return _Run(trial.findings(result), probed, outputs, found["tolerance"], found["warnings"], result.seconds)


def _verdict(runs: Sequence[_Run]) -> tuple[str | None, str]:
    """The kind of failure that runs on the same inputs prove (None: none), and sentences beside wrong values."""
    findings = runs[-1].findings or probes.classify(runs[0].probes, runs[-1].probes)
    kind = findings[0].kind if findings else "wrong values" if any(run.wrong for run in runs) else None
    messages = dict.fromkeys(finding.message for finding in findings)
    if kind == "wrong values" and len(runs) > 1 and runs[0].wrong and not runs[-1].wrong:
        messages[failures.FIRST_CALL] = None
    return kind, "\n".join(messages)


def check_timed(trial: Trial, sets: int, seed: int, timed_calls: Callable[[], object]) -> None:
    """After timing: are the answers of timed calls still right? KernelError when not.

    The contents of every set change in place, under the same pointers: of the first one element in a thousand, where nobody
    can guess, so that an answer that is kept for an input, or for an address, shows. Then ``timed_calls`` calls each once.
    """
    if trial.adopts:
        return
    for index in range(sets):
        trial.judge.ask(referee.fill if index else referee.perturb, index=index, seed=seed + index, pattern="B")
    timed_calls()
    for index in range(sets):
        found = trial.verdict(index)
        findings = probes.classify([_probe(p) for p in found["probes"]])
        wrong = [f"output '{c['name']}': {c['wrong']} of {c['elements']} elements" for c in found["comparisons"] if c["wrong"]]
        if findings or wrong:
            what = "; ".join([*(finding.message for finding in findings), *wrong])
            cause = "" if index else ": the answer does not follow the input, as that of a cache keyed on part of it would not"
            raise KernelError(f"{trial.spec.path.name} is right when it is checked and wrong when it is timed{cause} ({what})")


def _probe(data: dict[str, Any]) -> Probe:
    return Probe(**{**data, "guard": GuardReport(**data["guard"]) if data["guard"] else None})
