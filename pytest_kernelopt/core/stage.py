"""The processes that one evaluator works with: the referee, and the candidate of the kernel that is being looked at."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import version
from .errors import Unavailable
from .isolate import worker
from .isolate.handle import Mode
from .isolate.runner import Child, ChildFailure, Servers
from .reference.problem import Problem
from .spec.model import Case, KernelSpec
from .timing import sampling
from .verify import referee
from .verify.check import Judging, Trial
from .verify.judge import Judge

if TYPE_CHECKING:
    from .records import Gpu

_OPEN_SECONDS = 120.0  # creating a CUDA context, compiling the clock's kernels
_DETACH_SECONDS = 30.0


class Stage:
    """Starts what is needed when it is needed; one candidate lives at a time, for one version, and is never used again
    after a question that ended in an error. Every question is asked within ``turn``.
    """

    def __init__(self, scratch: Path, locks: Path, gpu: Gpu | None) -> None:
        self.gpu = gpu
        self.mode: Mode = "gpu" if gpu else "interpreter"
        self.judge = Judge(functools.partial(self._start, untrusted=False))
        self._locks = locks
        self._scratch = scratch
        self._servers = Servers(scratch, gpu=gpu.uuid if gpu else None)
        self._candidate: Child | None = None
        self._version: str | None = None
        self._mapped = False

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """This process's turn on the GPU: several share it, one after another. No memory of a case outlives the turn."""
        with self._gpu_lock():
            self.judge.be_ready()
            try:
                yield
            except BaseException:
                self.drop_candidate()
                raise
            finally:
                self.unmap()
                self.judge.release()

    def _gpu_lock(self) -> contextlib.AbstractContextManager[Any]:
        if self.gpu is None:
            return contextlib.nullcontext()
        from filelock import FileLock

        self._locks.mkdir(parents=True, exist_ok=True)
        return FileLock(self._locks / f"{self.gpu.uuid}.lock")

    def _start(self, *, untrusted: bool, environment: dict[str, str] | None = None) -> Child:
        """A new process, ready to time what it will load."""
        child = self._servers.start(self.mode, untrusted=untrusted, environment=environment)
        if self.gpu:
            try:
                child.call(sampling.open_clock, timeout=_OPEN_SECONDS)
            except ChildFailure as failure:
                child.close()
                raise Unavailable(f"the GPU cannot be used: {failure.sentence()}") from None
            except BaseException:
                child.close()
                raise
        return child

    def warm_aot(self) -> None:
        """Let the server for ``aot_child`` start while something else is done."""
        self._servers.warm("aot")

    def aot_child(self) -> Child:
        return self._servers.start("aot", untrusted=True)

    def bind(self, spec: KernelSpec, case: Case, *, ptr_size: int | None, setup: dict[str, Any] | None) -> Problem:
        """The case bound to the kernel, by the referee, who then has it at hand."""
        self.unmap()
        dims = [list(pair) for pair in case.dims]
        packed = referee.pack(spec)
        return Problem.from_json(self.judge.ask(referee.bind_case, spec=packed, dims=dims, ptr_size=ptr_size, setup=setup))

    def makes_inputs(self, spec: KernelSpec) -> bool:
        """Whether the inputs are those of the kernel's own ``setup``, since no reference says otherwise."""
        return spec.has_setup and not self.judge.ask(referee.gives_inputs, spec=referee.pack(spec))

    def candidate(self, spec: KernelSpec, library: Path | None, timeout: float) -> Child:
        """The process of this version with its code loaded, a fresh one when the last was another's or has ended."""
        wanted = f"{version.of_kernel(spec)} {library}"
        if self._candidate is not None and self._candidate.alive and self._version == wanted:
            return self._candidate
        self.drop_candidate()
        # a folder for each version: Triton's own key for a compiled kernel does not cover all that its source says
        cache = self._scratch / "triton" / wanted[:32]
        child = self._candidate = self._start(untrusted=True, environment={"TRITON_CACHE_DIR": str(cache)})
        self._version = wanted
        child.trusted = False
        if library is not None:
            about: dict[str, Any] = {"path": str(library), "returns_status": spec.returns_status}
            child.call(worker.load_library, timeout=timeout, entry=spec.entry, **about)
        else:
            about = {"path": str(spec.path), "module_name": f"{spec.path.stem}_kernel"}
            child.call(worker.load_module, timeout=timeout, entry=spec.entry, **about)
        return child

    def trial(self, spec: KernelSpec, case: Case, library: Path | None, judging: Judging, ptr_size: int | None) -> Trial:
        """Everything bound for one case; ``Trial.map`` comes next. ChildFailure when the version does not load."""
        child = self.candidate(spec, library, judging.timeout)
        self.unmap()
        adopts = self.makes_inputs(spec)
        setup = None
        if spec.has_setup and (spec.takes_any or adopts):
            dims = {name: value for name, value in case.dims if name != "dtype"}
            setup = child.call(worker.setup, timeout=judging.first_timeout, dims=dims, seed=judging.seeds[0])
        problem = self.bind(spec, case, ptr_size=ptr_size, setup=setup)
        self._mapped = True
        return Trial(self.judge, child, spec, case, problem, judging, adopts)

    def unmap(self) -> None:
        """Take the referee's memory from the candidate, before the referee gives it back."""
        if not self._mapped:
            return
        self._mapped = False
        if self._candidate is not None and self._candidate.alive:
            try:
                self._candidate.call(worker.detach, timeout=_DETACH_SECONDS)
            except ChildFailure:
                self.drop_candidate()

    def drop_candidate(self) -> None:
        """End the candidate's process; the next question gets a fresh one."""
        child, self._candidate, self._version, self._mapped = self._candidate, None, None, False
        if child is not None:
            child.close()

    def close(self) -> None:
        """End every process, whatever state it is in."""
        self._servers.close()
        self.drop_candidate()
        self.judge.close()
