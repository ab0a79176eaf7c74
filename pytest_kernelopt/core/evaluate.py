"""One version of one kernel: built, verified at its cases, timed. What was found out is kept for the session."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import device, environment
from .build import Artifact, Cache, build
from .build.triton import compile_launches
from .errors import BuildError, KernelError, Unavailable
from .isolate import memory
from .isolate.runner import Child, ChildFailure, close_fds
from .spec.model import Case, KernelSpec
from .stage import Stage
from .timing import ceilings, floors, measure, sampling
from .toolchain import Target, Toolchain
from .verify import check, interpreter, referee
from .verify.check import Judging, Trial

if TYPE_CHECKING:
    from torch import Tensor

    from .records import Build, Correctness, Environment, Gpu, Timing

_FIRST_CALL_SECONDS = 300.0  # compiling and tuning have a limit of their own
_BUILD_SECONDS = 300.0
_TIMED_SETS = 3  # groups of arguments that timed calls take in turn
_MOST_MEMORY = 0.25  # share of the GPU's memory that all of them may take
_TIMED_SEED = 1_000  # timed inputs are none that correctness has seen
_WITHOUT_GPU = Target("sm_90a")


@dataclass(frozen=True)
class EvaluatorSettings:
    """What the command line asks for. ``warmup_ms`` in milliseconds, ``max_time`` and ``timeout`` in seconds."""

    gpu: int | None = None
    arch: str | None = None
    backend: str | None = None
    nvcc: str | None = None
    flags: tuple[str, ...] = ()
    seed: int = 0
    trials: int = 3
    atol: float | None = None
    rtol: float | None = None
    ptr_size: int | None = None
    cache: Literal["cold", "warm"] = "cold"
    warmup_ms: float = 50.0
    repeat: int | None = None
    max_time: float = 3.0
    timeout: float = 60.0
    cache_dir: Path | None = None


class Evaluator:
    """Answers what a kernel is worth. Every answer is kept: asking twice costs once.

    Verdicts on a kernel are records or KernelError, and BuildError for one that does not compile; what this machine can't
    do is Unavailable.
    """

    def __init__(self, settings: EvaluatorSettings) -> None:
        self.settings = settings
        self._answers: dict[tuple[Path, str], Any] = {}
        self._first_calls: dict[Path, float] = {}
        self._exit = contextlib.ExitStack()

    # what there is to work with, found when first needed

    @functools.cached_property
    def gpu(self) -> Gpu | None:
        return device.select(self.settings.gpu)

    @functools.cached_property
    def toolchain(self) -> Toolchain:
        return Toolchain.find(nvcc=self.settings.nvcc)

    @functools.cached_property
    def target(self) -> Target:
        if self.settings.arch:
            return Target.parse(self.settings.arch)
        return Target.for_gpu(self.gpu.capability) if self.gpu else _WITHOUT_GPU

    @functools.cached_property
    def cache(self) -> Cache:
        return Cache(self.settings.cache_dir)

    @functools.cached_property
    def stage(self) -> Stage:
        scratch = self._exit.enter_context(self.cache.scratch())
        stage = Stage(scratch, self.cache.root / "locks", self.gpu, cold=self.settings.cache == "cold")
        self._exit.callback(stage.close)
        return stage

    def environment(self) -> Environment:
        """The machine and the versions that every figure belongs to."""
        return environment.describe(self.gpu, self.toolchain)

    def close(self) -> None:
        """End every process and remove every scratch file."""
        self._exit.close()
        self.__dict__.pop("stage", None)

    def forget(self, path: Path) -> None:
        """Answer anew on the kernel at ``path``."""
        self._answers = {key: value for key, value in self._answers.items() if key[0] != path}

    def _once(self, spec: KernelSpec, question: str, answer: Callable[[], Any]) -> Any:
        """The kept answer, or a new one; a refusal is an answer too."""
        settings = dict(spec.reference.settings) if spec.reference else {}
        key = (spec.path, f"{question} {json.dumps(settings, sort_keys=True, default=str)}")
        if key not in self._answers:
            try:
                self._answers[key] = answer()
            except (KernelError, Unavailable) as error:
                self._answers[key] = error
        kept = self._answers[key]
        if isinstance(kept, Exception):
            raise kept.with_traceback(None)
        return kept

    # building

    def build(self, spec: KernelSpec) -> Build:
        return self._artifact(spec).record

    def _artifact(self, spec: KernelSpec) -> Artifact:
        artifact: Artifact = self._once(spec, "build", lambda: self._build(spec))
        return artifact

    def _build(self, spec: KernelSpec) -> Artifact:
        ahead = functools.partial(self._ahead, spec) if spec.backend == "triton" else None
        about: dict[str, Any] = {"flags": self.settings.flags, "timeout": _BUILD_SECONDS, "ahead": ahead}
        return build(spec, self.target, self.toolchain, self.cache, **about)

    def _ahead(self, spec: KernelSpec, path: str, entry: str, arch: str, scratch: str) -> Any:
        """Compile a Triton kernel's launches at its first timed case, in a child without a GPU."""
        if spec.reference is None and not spec.has_setup:
            raise Unavailable(f"no inputs to compile it for: no reference ({', '.join(spec.looked_for)}) and no setup()")
        if spec.has_setup and spec.reference is None:
            return {"error": None, "kernels": [], "notes": [], "deferred": "setup() makes its inputs", "compiler": "triton"}
        problem = self.stage.bind(spec, spec.timed[0], ptr_size=self.settings.ptr_size, setup=None)
        child = self.stage.aot_child()
        try:
            order: dict[str, Any] = {"path": path, "entry": entry, "arch": arch, "problem": problem.to_json(), "scratch": scratch}
            return child.call(compile_launches, timeout=_BUILD_SECONDS, **order)
        except ChildFailure as failure:
            log = failure.trace or failure.output
            raise BuildError(f"{spec.path.name}: compiling its launches {failure.type or ''} {failure}", log) from None
        finally:
            child.close()

    def _library(self, spec: KernelSpec) -> Path | None:
        """The built library; None for Triton, which is compiled where it runs."""
        return None if spec.backend == "triton" else self._artifact(spec).path

    # correctness

    def verify(self, spec: KernelSpec, case: Case) -> Correctness:
        record: Correctness = self._once(spec, f"verify {case.id}", lambda: self._verify(spec, case))
        return record

    def _judging(self, spec: KernelSpec) -> Judging:
        """Tolerances: the command line's, else those of the reference or a marker."""
        own: Mapping[str, Any] = spec.reference.settings if spec.reference else {}
        return Judging(
            seeds=tuple(range(self.settings.seed, self.settings.seed + self.settings.trials)),
            atol=own.get("atol") if self.settings.atol is None else self.settings.atol,
            rtol=own.get("rtol") if self.settings.rtol is None else self.settings.rtol,
            compute=own.get("compute"),
            timeout=self.settings.timeout,
            first_timeout=max(_FIRST_CALL_SECONDS, self.settings.timeout) if spec.backend == "triton" else self.settings.timeout,
        )

    def _verify(self, spec: KernelSpec, case: Case) -> Correctness:
        from .records import Correctness

        judging = self._judging(spec)
        mode: Literal["device", "interpreter"] = "device" if self.gpu else "interpreter"
        known: dict[str, Any] = {"case": case.id, "mode": mode, "seeds": judging.seeds}
        if self.gpu is None and spec.backend != "triton":
            return Correctness(**known, verdict="unavailable", message=f"it can only be compiled here: {device.why_none()}")
        if spec.reference is None and spec.backend == "triton" and not spec.has_setup:
            return Correctness(**known, verdict="unverified", message=_no_reference(spec))
        library = self._library(spec)
        with self.stage.turn(), self._answering():
            trial = self._trial(spec, case, library, judging)
            if isinstance(trial, ChildFailure):
                lacking = interpreter.limit(trial) if self.gpu is None else None
                if lacking:
                    return Correctness(**known, verdict="unavailable", message=lacking)
                text = f"{spec.path.name} cannot be loaded: {trial.where + ': ' if trial.where else ''}{trial.type} {trial}"
                return Correctness(**known, verdict="failed", kind="does not load", message=text)
            refused = interpreter.refusal(spec.path, trial.problem) if self.gpu is None else None
            if refused:
                return Correctness(**known, verdict="unavailable", message=refused)
            trial.map(1)
            record, seconds = check.check_case(trial)
            self._first_calls.setdefault(spec.path, seconds)
            if record.verdict != "passed":
                self.stage.drop_candidate()
        if record.verdict == "unverified":
            return record.model_copy(update={"message": _no_reference(spec)})
        return record

    def _trial(self, spec: KernelSpec, case: Case, library: Path | None, judging: Judging) -> Trial | ChildFailure:
        try:
            return self.stage.trial(spec, case, library, judging, self.settings.ptr_size)
        except ChildFailure as failure:
            self.stage.drop_candidate()
            return failure

    @contextlib.contextmanager
    def _answering(self) -> Any:
        """What goes wrong in the processes beside a kernel's own calls ends the question, and the processes."""
        try:
            yield
        except ChildFailure as failure:
            self.stage.drop_referee()
            where = f"{failure.where}: " if failure.where else ""
            raise KernelError(f"{where}{failure.type} {failure}".strip()) from None
        except (KernelError, Unavailable):
            self.stage.drop_candidate()
            raise

    # timing

    def time(self, spec: KernelSpec, case: Case) -> Timing:
        record: Timing = self._once(spec, f"time {case.id}", lambda: self._time(spec, case))
        return record

    def _time(self, spec: KernelSpec, case: Case) -> Timing:
        verdict = self.verify(spec, case)
        if self.gpu is None:
            raise Unavailable(f"nothing can be timed here: {device.why_none()}")
        if verdict.verdict not in ("passed", "unverified"):
            raise KernelError(verdict.message or f"{spec.path.name} is wrong at {case.id}")
        library, judging = self._library(spec), self._judging(spec)
        with self.stage.turn(), self._answering():
            trial = self._trial(spec, case, library, judging)
            if isinstance(trial, ChildFailure):
                raise trial
            self._ceilings  # noqa: B018 - measured before, so that its memory is free again
            sets = self._sets(trial)
            trial.map(sets)
            for index in range(sets):
                trial.fill(index, self.settings.seed + _TIMED_SEED + index, "A")
            trial.call()
            return self._measured(trial, sets, verified=verdict.verdict == "passed")

    def _sets(self, trial: Trial) -> int:
        assert self.gpu is not None
        one = sum(floors.tensor_bytes(tensor) for tensor in trial.problem.tensors)
        room = self.gpu.memory_bytes * _MOST_MEMORY
        return _TIMED_SETS if one * _TIMED_SETS <= room else 1

    def _measured(self, trial: Trial, sets: int, *, verified: bool) -> Timing:
        assert self.gpu is not None
        spec, settings = trial.spec, self.settings
        plan = measure.Plan(settings.cache, settings.warmup_ms, settings.repeat, settings.max_time)
        _use_calls(trial)
        kernel = measure.Series(_sampler(trial.candidate, settings.timeout))
        reference = None
        if spec.reference is not None:
            changed = trial.judge.call(referee.use_reference, timeout=settings.timeout)
            trial.judge.call(sampling.use_calls, timeout=settings.timeout, restore=changed)
            reference = measure.Series(_sampler(trial.judge, check.REFERENCE_SECONDS))
        with device.Monitor(self.gpu.uuid) as monitor:
            cap_reached, _ = measure.run(kernel, reference, plan)
        if verified:
            check.check_timed(trial, sets, settings.seed + 2 * _TIMED_SEED, functools.partial(_call_each, trial, kernel, sets))
        first = self._first_calls.get(spec.path)
        compiled = first if spec.backend == "triton" else (self.build(spec).seconds or None)
        record = measure.timing(
            trial.case.id,
            kernel,
            reference,
            plan,
            cap_reached=cap_reached,
            conditions=monitor.conditions,
            verified=verified,
            seed=settings.seed + _TIMED_SEED,
            compile_s=compiled,
            first_call_ms=None if first is None else first * 1e3,
        )
        return self._against_ceilings(record, trial)

    @functools.cached_property
    def _ceilings(self) -> ceilings.Ceilings:
        assert self.gpu is not None
        found = environment.torch()
        version = found.version if found else "unknown"
        return ceilings.obtain(self.cache.root, self.gpu, version, lambda: self.stage.ask(ceilings.measure))

    def _against_ceilings(self, record: Timing, trial: Trial) -> Timing:
        assert self.gpu is not None
        compute = trial.judging.compute
        about = (trial.problem, self.settings.cache, self._ceilings, self.gpu.l2_bytes, compute)
        judgement = floors.judge(record.median_ms, *about)
        if judgement.kind == "impossible":
            raise KernelError(f"{trial.spec.path.name} at {trial.case.id}: {judgement.sentence}")
        rates = floors.rates(record.median_ms, *about)
        return record.model_copy(
            update={
                "floor_ms": judgement.floor_ms,
                "suspicious": judgement.sentence,
                "gb_per_s": rates.gb_per_s,
                "tflop_per_s": rates.tflop_per_s,
                "bandwidth_percent": rates.bandwidth_percent,
                "compute_percent": rates.compute_percent,
            }
        )

    def time_callable(self, function: Callable[[], object]) -> Timing:
        """Device time of a callable of this very process, which then has a CUDA context of its own."""
        if self.gpu is None:
            raise Unavailable(f"nothing can be timed here: {device.why_none()}")
        plan = measure.Plan(self.settings.cache, self.settings.warmup_ms, self.settings.repeat, self.settings.max_time)
        with self.stage.turn(), device.Monitor(self.gpu.uuid) as monitor:
            series = measure.Series(sampling.sampler_of(function, cold=plan.cache == "cold"))
            cap_reached, _ = measure.run(series, None, plan)
        return measure.timing(
            "callable", series, None, plan, cap_reached=cap_reached, conditions=monitor.conditions, verified=False
        )

    # results as they are

    def run(self, spec: KernelSpec, case: Case) -> dict[str, Tensor]:
        """The kernel's outputs at a case, by name, as CPU tensors; inputs of the session's seed."""
        return self._results(spec, case, referee.fetch, call=True)

    def expected(self, spec: KernelSpec, case: Case) -> dict[str, Tensor]:
        """The reference's outputs on the same inputs, in its own precision, by name, as CPU tensors."""
        return self._results(spec, case, referee.expect, call=False)

    def _results(self, spec: KernelSpec, case: Case, ask: Callable[..., Any], *, call: bool) -> dict[str, Tensor]:
        if self.gpu is None and spec.backend != "triton":
            raise Unavailable(f"it can only be compiled here: {device.why_none()}")
        library, judging = self._library(spec), self._judging(spec)
        with self.stage.turn(), self._answering():
            trial = self._trial(spec, case, library, judging)
            if isinstance(trial, ChildFailure):
                raise trial
            refused = interpreter.refusal(spec.path, trial.problem) if self.gpu is None else None
            if refused:
                raise Unavailable(refused)
            trial.map(1)
            trial.fill(0, judging.seeds[0], "A")
            if call:
                self._call(trial)
            layouts, fds = trial.judge.call_with_fds(ask, timeout=check.REFERENCE_SECONDS, index=0)
            try:
                return {
                    layout["name"]: memory.view(memory.MappedBlock(layout["block"], fds), layout).clone() for layout in layouts
                }
            finally:
                close_fds(fds)

    def _call(self, trial: Trial) -> None:
        try:
            result = trial.call()
        except ChildFailure as failure:
            self.stage.drop_candidate()
            kind, message = check.explain(trial, failure)
            raise KernelError(f"{trial.spec.path.name}: {kind}: {message}") from None
        findings = list(check.call_findings(trial.problem, result))
        if findings:
            raise KernelError(f"{trial.spec.path.name}: {findings[0].message}")


def _sampler(child: Child, timeout: float) -> measure.Sampler:
    return functools.partial(child.call, sampling.sample, timeout=timeout)


def _use_calls(trial: Trial) -> None:
    """Time the candidate's calls, with what they change in place put back to its content of now before each."""
    changed = [tensor.name for tensor in trial.problem.tensors if tensor.role == "inout"]
    trial.candidate.call(sampling.use_calls, timeout=trial.judging.timeout, restore=changed)


def _call_each(trial: Trial, kernel: measure.Series, sets: int) -> None:
    """One timed call on each set, as it is now."""
    _use_calls(trial)
    kernel.sampler(count=sets, spin_ns=0, first=0, deliver=True)


def _no_reference(spec: KernelSpec) -> str:
    return f"no reference: looked for {', '.join(spec.looked_for)}"
