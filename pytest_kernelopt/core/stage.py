"""The processes that one evaluator works with: the referee, and the candidate of the kernel that is being looked at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import KernelError, Unavailable
from .isolate import worker
from .isolate.runner import Child, ChildFailure, Mode, Servers
from .reference.problem import Problem
from .spec.model import Case, KernelSpec
from .timing import sampling
from .verify import referee
from .verify.check import REFERENCE_SECONDS, Judging, Trial

if TYPE_CHECKING:
    from .records import Gpu

_LOAD_SECONDS = 120.0  # importing the user's module, creating a CUDA context


class Stage:
    """Starts what is needed when it is needed; one candidate lives at a time, for one version, and is never used again
    after it failed. ``turn`` is held while the GPU is used: several pytest processes share it, one after another.
    """

    def __init__(self, scratch: Path, locks: Path, gpu: Gpu | None, *, cold: bool) -> None:
        self.gpu = gpu
        self.mode: Mode = "gpu" if gpu else "interpreter"
        self._cold = cold
        self._locks = locks
        self._servers = Servers(scratch, gpu=gpu.uuid if gpu else None)
        self._referee: Child | None = None
        self._candidate: Child | None = None
        self._version: tuple[Path, Path | None] | None = None
        self._mapped = False
        self._triton_cache = scratch / "triton"

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """This process's turn on the GPU."""
        if self.gpu is None:
            yield
            return
        from filelock import FileLock

        self._locks.mkdir(parents=True, exist_ok=True)
        with FileLock(self._locks / f"{self.gpu.uuid}.lock"):
            yield

    def referee(self) -> Child:
        if self._referee is None or not self._referee.alive:
            self._referee = self._servers.start(self.mode, untrusted=False)
            if self.gpu:
                self._referee.call(sampling.open_clock, timeout=_LOAD_SECONDS, cold=self._cold)
        return self._referee

    def aot_child(self) -> Child:
        return self._servers.start("aot", untrusted=True)

    def ask(self, function: Any, **args: Any) -> Any:
        """Call a function in the referee; KernelError when the reference takes the process down, and a new one next time."""
        try:
            return self.referee().call(function, timeout=REFERENCE_SECONDS, **args)
        except ChildFailure as failure:
            self.drop_referee()
            raise KernelError(f"the reference's process {failure}" if failure.kind != "raised" else _told(failure)) from None
        except KernelError as error:
            if "CUDA error" in str(error):  # the context is spoiled for good
                self.drop_referee()
            raise

    def bind(self, spec: KernelSpec, case: Case, *, ptr_size: int | None, setup: dict[str, Any] | None) -> Problem:
        self.unmap()
        dims = [list(pair) for pair in case.dims]
        return Problem.from_json(self.ask(referee.bind_case, spec=referee.pack(spec), dims=dims, ptr_size=ptr_size, setup=setup))

    def candidate(self, spec: KernelSpec, library: Path | None) -> Child:
        """The process of this version with its code loaded, a fresh one when the last was another's or failed."""
        version = (spec.path, library)
        if self._candidate is not None and self._candidate.alive and self._version == version:
            return self._candidate
        self.drop_candidate()
        self._candidate = self._servers.start(
            self.mode, untrusted=True, environment={"TRITON_CACHE_DIR": str(self._triton_cache / str(abs(hash(version))))}
        )
        self._version = version
        if self.gpu:
            self._candidate.call(sampling.open_clock, timeout=_LOAD_SECONDS, cold=self._cold)
        if library is not None:
            loader: dict[str, Any] = {"path": str(library), "entry": spec.entry, "returns_status": spec.returns_status}
            self._candidate.call(worker.load_library, timeout=_LOAD_SECONDS, **loader)
        else:
            name = f"{spec.path.stem}_kernel"
            self._candidate.call(
                worker.load_module, timeout=_LOAD_SECONDS, path=str(spec.path), entry=spec.entry, module_name=name
            )
        return self._candidate

    def trial(self, spec: KernelSpec, case: Case, library: Path | None, judging: Judging, ptr_size: int | None) -> Trial:
        """Everything bound for one case; ``Trial.map`` comes next. ChildFailure when the version does not load."""
        child = self.candidate(spec, library)
        self.unmap()
        setup = None
        if spec.has_setup:
            trial_inputs = self.ask(referee.gives_inputs, spec=referee.pack(spec))
            if spec.takes_any or not trial_inputs:
                dims = {name: value for name, value in case.dims if name != "dtype"}
                setup = child.call(worker.setup, timeout=judging.first_timeout, dims=dims, seed=judging.seeds[0])
        problem = self.bind(spec, case, ptr_size=ptr_size, setup=setup)
        self._mapped = True
        adopts = setup is not None and not trial_inputs
        return Trial(self.referee(), child, spec, case, problem, judging, adopts=adopts)

    def unmap(self) -> None:
        """Take the referee's memory from the candidate, before the referee gives it back."""
        if not self._mapped:
            return
        self._mapped = False
        if self._candidate is not None and self._candidate.alive:
            try:
                self._candidate.call(worker.detach, timeout=_LOAD_SECONDS)
            except ChildFailure:
                self.drop_candidate()

    def drop_candidate(self) -> None:
        self._mapped = False
        if self._candidate is not None:
            self._candidate.close()
        self._candidate = self._version = None

    def drop_referee(self) -> None:
        self.drop_candidate()
        if self._referee is not None:
            self._referee.close()
        self._referee = None

    def close(self) -> None:
        with contextlib.suppress(Unavailable):
            self.drop_referee()
        self._servers.close()


def _told(failure: ChildFailure) -> str:
    return f"{failure.where + ': ' if failure.where else ''}{failure.type}: {failure}"
