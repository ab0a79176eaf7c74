"""One version of one kernel: built, verified at its cases, timed. What was found out is kept for the session."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from . import device, environment, timed, version
from .build import Artifact, Cache, build
from .build.triton import compile_launches
from .errors import BuildError, KernelError, Unavailable
from .isolate import memory
from .isolate.protocol import close_fds
from .isolate.runner import ChildFailure
from .spec.model import Case, KernelSpec
from .stage import Stage
from .timing import ceilings, measure, sampling
from .toolchain import Target, Toolchain
from .verify import check, interpreter, referee
from .verify.check import Judging, Trial

if TYPE_CHECKING:
    from torch import Tensor

    from .records import Build, Correctness, Environment, Gpu, Timing

_FIRST_CALL_SECONDS = 300.0  # compiling and tuning have a limit of their own
_BUILD_SECONDS = 300.0
_WITHOUT_GPU = Target("sm_90a")


# names in a ``kopt`` dict or marker: the field of EvaluatorSettings that wins over it, and the default
_OWN_SETTINGS: dict[str, tuple[str, Any]] = {
    "trials": ("trials", 3),
    "atol": ("atol", None),
    "rtol": ("rtol", None),
    "cache": ("cache", "cold"),
    "warmup": ("warmup_ms", 50.0),
    "repeat": ("repeat", None),
    "max_time": ("max_time", 3.0),
    "timeout": ("timeout", 60.0),
}


@dataclass(frozen=True)
class EvaluatorSettings:
    """What the command line asks for; None where it says nothing, and then a reference's ``kopt`` or a marker may.

    ``warmup_ms`` in milliseconds, ``max_time`` and ``timeout`` in seconds.
    """

    gpu: int | None = None
    arch: str | None = None
    backend: str | None = None
    nvcc: str | None = None
    flags: tuple[str, ...] = ()
    seed: int = 0
    trials: int | None = None
    atol: float | None = None
    rtol: float | None = None
    ptr_size: int | None = None
    cache: Literal["cold", "warm"] | None = None
    warmup_ms: float | None = None
    repeat: int | None = None
    max_time: float | None = None
    timeout: float | None = None
    cache_dir: Path | None = None

    def resolved(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Every setting that a kernel's own ``kopt`` may make: the command line's, else ``own``, else the default."""
        return {
            name: next((v for v in (getattr(self, field), own.get(name)) if v is not None), default)
            for name, (field, default) in _OWN_SETTINGS.items()
        }


class Evaluator:
    """Answers what a kernel is worth. Every answer is kept: asking twice costs once.

    Verdicts on a kernel are records or KernelError, and BuildError for one that does not compile; what this machine can't
    do is Unavailable.
    """

    def __init__(self, settings: EvaluatorSettings) -> None:
        self.settings = settings
        self._answers: dict[tuple[Path, str, str], Any] = {}
        self._first_calls: dict[str, float] = {}
        self._exit = contextlib.ExitStack()
        self._owner = os.getpid()

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
        stage = Stage(scratch, self.cache.root / "locks", self.gpu)
        self._exit.callback(stage.close)
        return stage

    def environment(self) -> Environment:
        """The machine and the versions that every figure belongs to."""
        return environment.describe(self.gpu, self.toolchain)

    def close(self) -> None:
        """End every process and remove every scratch file. In a fork of the process that it belongs to: nothing."""
        if self._owner == os.getpid():
            self._exit.close()
            self.__dict__.pop("stage", None)

    def forget(self, path: Path) -> None:
        """Answer anew on the kernel at ``path``."""
        self._answers = {key: value for key, value in self._answers.items() if key[0] != path}

    def _once(self, spec: KernelSpec, question: str, answer: Callable[[], Any]) -> Any:
        """The kept answer, or a new one. A verdict against the kernel is an answer; what the machine could not do just now,
        for want of memory say, it may do the next time."""
        settings = json.dumps(dict(spec.settings), sort_keys=True, default=str)
        key = (spec.path, version.of_answer(spec), f"{question} {settings}")
        if key not in self._answers:
            try:
                self._answers[key] = answer()
            except KernelError as error:
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
        self.stage.warm_aot()
        with self.stage.turn():
            problem = self.stage.bind(spec, spec.timed[0], ptr_size=self.settings.ptr_size, setup=None)
        child = self.stage.aot_child()
        try:
            order: dict[str, Any] = {"path": path, "entry": entry, "arch": arch, "problem": problem.to_json(), "scratch": scratch}
            result = child.call(compile_launches, timeout=self.settings.timeout or _BUILD_SECONDS, **order)
        except ChildFailure as failure:
            log = failure.trace or failure.output
            more = "; compiling may need more: --kopt-timeout" if failure.kind == "hung" else ""
            text = f"{spec.path.name}: the process that compiled its launches: {failure.sentence()}{more}"
            raise BuildError(text, log) from None
        finally:
            child.close()
        if not isinstance(result, dict) or not {"compiler", "kernels", "deferred", "notes", "error"} <= result.keys():
            raise BuildError(f"{spec.path.name}: the process that compiled its launches gave no result")
        if not (result["kernels"] or result["deferred"] or result["error"]):
            result["notes"] = [*result["notes"], "it launches no Triton kernel of its own"]
        return result

    def _library(self, spec: KernelSpec) -> Path | None:
        """The built library; None for Triton, which is compiled where it runs."""
        return None if spec.backend == "triton" else self._artifact(spec).path

    # correctness

    def verify(self, spec: KernelSpec, case: Case) -> Correctness:
        record: Correctness = self._once(spec, f"verify {case.id}", lambda: self._verify(spec, case))
        return record

    def _judging(self, spec: KernelSpec) -> Judging:
        asked = self.settings.resolved(spec.settings)
        compiles = spec.backend == "triton" and self.gpu is not None
        return Judging(
            seeds=tuple(range(self.settings.seed, self.settings.seed + asked["trials"])),
            atol=asked["atol"],
            rtol=asked["rtol"],
            compute=spec.settings.get("compute"),
            timeout=asked["timeout"],
            first_timeout=max(_FIRST_CALL_SECONDS, asked["timeout"]) if compiles else asked["timeout"],
        )

    def _verify(self, spec: KernelSpec, case: Case) -> Correctness:
        from .records import Correctness

        judging = self._judging(spec)
        mode: Literal["device", "interpreter"] = "device" if self.gpu else "interpreter"
        known: dict[str, Any] = {"case": case.id, "mode": mode, "seeds": judging.seeds}
        if spec.reference is None and (self.gpu is None or spec.backend == "triton") and not spec.has_setup:
            return Correctness(**known, verdict="unverified", message=_no_reference(spec))
        if self.gpu is None and spec.backend != "triton":
            with self._turn(spec):  # a mistake in the reference needs no GPU to be seen
                self.stage.bind(spec, case, ptr_size=self.settings.ptr_size, setup=None)
            return Correctness(**known, verdict="unavailable", message=f"it can only be compiled here: {device.why_none()}")
        library = self._library(spec)
        with self._turn(spec):
            trial = self._trial(spec, case, library, judging)
            if isinstance(trial, ChildFailure):
                lacking = interpreter.limit(trial) if self.gpu is None else None
                if lacking:
                    return Correctness(**known, verdict="unavailable", message=lacking)
                text = f"{spec.path.name} cannot be loaded: {trial.sentence()}"
                return Correctness(**known, verdict="failed", kind="does not load", message=text)
            refused = interpreter.refusal(spec.path, trial.problem) if self.gpu is None else None
            if refused:
                return Correctness(**known, verdict="unavailable", message=refused)
            trial.map(1)
            record, seconds = check.check_case(trial)
            self._first_calls.setdefault(version.of_kernel(spec), seconds)
            if record.verdict not in ("passed", "unverified"):
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
    def _turn(self, spec: KernelSpec) -> Iterator[None]:
        """A question to the processes. What goes wrong in the kernel's beside its own calls ends the question."""
        try:
            with self.stage.turn():
                yield
        except ChildFailure as failure:
            raise KernelError(f"the process of {spec.path.name}: {failure.sentence()}") from None

    # timing

    def time(self, spec: KernelSpec, case: Case) -> Timing:
        self.require_gpu()
        record: Timing = self._once(spec, f"time {case.id}", lambda: self._time(spec, case))
        return record

    def require_gpu(self) -> None:
        """Unavailable, with the reason, where nothing can be timed: to be asked before anything long is begun."""
        if self.gpu is None:
            raise Unavailable(f"nothing can be timed here: {device.why_none()}")

    def _time(self, spec: KernelSpec, case: Case) -> Timing:
        verdict = self.verify(spec, case)
        if verdict.verdict not in ("passed", "unverified"):
            raise KernelError(verdict.message or f"{spec.path.name} is wrong at {case.id}")
        library, judging = self._library(spec), self._judging(spec)
        with self._turn(spec):
            trial = self._trial(spec, case, library, judging)
            if isinstance(trial, ChildFailure):
                raise trial
            assert self.gpu is not None
            about = (
                self._plan(spec.settings),
                self.gpu,
                self._ceilings,
                self.settings.seed,
            )  # ceilings first: their memory is free again
            first = self._first_calls.get(version.of_kernel(spec))
            record = timed.time_trial(trial, *about, verified=verdict.verdict == "passed")
        compiled = first if spec.backend == "triton" else (self.build(spec).seconds or None)
        return record.model_copy(update={"compile_s": compiled, "first_call_ms": None if first is None else first * 1e3})

    def _plan(self, own: Mapping[str, Any]) -> measure.Plan:
        asked = self.settings.resolved(own)
        return measure.Plan(asked["cache"], asked["warmup"], asked["repeat"], asked["max_time"])

    @functools.cached_property
    def _ceilings(self) -> ceilings.Ceilings:
        assert self.gpu is not None
        found = environment.torch()
        version = found.version if found else "unknown"
        monitor = device.Monitor(self.gpu.uuid)

        def measured() -> Any:
            with monitor:
                return self.stage.judge.ask(ceilings.measure)

        return ceilings.obtain(self.cache.root, self.gpu, version, measured, undisturbed=lambda: monitor.undisturbed)

    def time_callable(self, function: Callable[[], object], own: Mapping[str, Any] | None = None) -> Timing:
        """Device time of a callable of this very process, which then has a CUDA context of its own; ``own``: its settings."""
        self.require_gpu()
        assert self.gpu is not None
        plan = self._plan(own or {})
        monitor = device.Monitor(self.gpu.uuid)
        with self.stage.turn():
            sampler, cupti = sampling.sampler_of(function, cold=plan.cache == "cold")
            series = measure.Series(sampler, cupti=cupti)
            cap_reached, _ = measure.run(series, None, plan, watched=monitor)
        return measure.timing(
            "callable", series, None, plan, cap_reached=cap_reached, conditions=monitor.conditions, verified=False
        )

    # results as they are

    def run(self, spec: KernelSpec, case: Case) -> dict[str, Tensor]:
        """The kernel's outputs at a case, by name, as CPU tensors; inputs of the session's seed."""
        if self.gpu is None and spec.backend != "triton":
            raise Unavailable(f"it can only be compiled here: {device.why_none()}")
        library = self._library(spec)
        with self._turn(spec):
            trial = self._filled(spec, case, library)
            refused = interpreter.refusal(spec.path, trial.problem) if self.gpu is None else None
            if refused:
                raise Unavailable(refused)
            try:
                found = trial.findings(trial.call())
            except ChildFailure as failure:
                found = [trial.no_return(failure)]
            if found:
                raise KernelError(f"{spec.path.name}: {found[0].kind}: {found[0].message}")
            return self._fetch(referee.fetch)

    def expected(self, spec: KernelSpec, case: Case) -> dict[str, Tensor]:
        """The reference's outputs on the same inputs, in its own precision, by name, as CPU tensors."""
        if spec.reference is None:
            raise Unavailable(_no_reference(spec))
        with self._turn(spec):
            if self.stage.makes_inputs(spec) or (spec.has_setup and spec.takes_any):
                self._filled(spec, case, None)
            else:  # without the kernel, which may not even load
                self.stage.bind(spec, case, ptr_size=self.settings.ptr_size, setup=None)
                self.stage.judge.ask(referee.allocate, sets=1)
                self.stage.judge.ask(referee.fill, index=0, seed=self._judging(spec).seeds[0], pattern="A")
            return self._fetch(referee.expect)

    def _filled(self, spec: KernelSpec, case: Case, library: Path | None) -> Trial:
        """A trial with the inputs of the session's seed."""
        judging = self._judging(spec)
        trial = self.stage.trial(spec, case, library, judging, self.settings.ptr_size)
        trial.map(1)
        trial.fill(0, judging.seeds[0], "A")
        return trial

    def _fetch(self, ask: Callable[..., Any]) -> dict[str, Tensor]:
        layouts, fds = self.stage.judge.ask_with_fds(ask, index=0)
        try:
            return {layout["name"]: memory.view(memory.MappedBlock(layout["block"], fds), layout).clone() for layout in layouts}
        finally:
            close_fds(fds)


def _no_reference(spec: KernelSpec) -> str:
    return f"no reference: looked for {', '.join(spec.looked_for)}"
