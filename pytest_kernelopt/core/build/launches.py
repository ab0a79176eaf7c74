"""Triton's launches, turned into compilations that are written down. Runs in an "aot" child: Triton is imported in it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

from ..toolchain import Target
from . import resources

# Shared memory that one block can have, in bytes: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
_SHARED_LIMIT = {
    75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448,
    100: 232448, 103: 232448, 110: 232448, 120: 101376, 121: 101376,
}  # fmt: skip


class StubDriver:
    """As much of a driver as Triton's compiler asks for: what to compile for."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)


class Recorder:
    """While installed, ``kernel[grid](...)`` compiles for ``target``; an autotuned kernel does so with each of its configs."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._seen: dict[tuple[str, str | None], dict[str, Any]] = {}
        self._notes: list[str] = []
        self._config: str | None = None
        self._failure: BaseException | None = None

    def failed_with(self, error: BaseException) -> bool:
        """Whether this exception came out of a compilation, and not out of the Python round it."""
        return self._failure is error

    def results(self) -> tuple[list[dict[str, Any]], list[str]]:
        return list(self._seen.values()), self._notes

    def over_shared_limit(self, kernels: list[dict[str, Any]]) -> str:
        """A sentence when some kernel can't be launched on the target in any of its configs; single configs get a note."""
        limit = _SHARED_LIMIT.get(self.target.number)
        sentence = ""
        for name in dict.fromkeys(kernel["name"] for kernel in kernels):
            variants = [k for k in kernels if k["name"] == name]
            over = [k for k in variants if limit and (k["dynamic_shared_bytes"] or 0) > limit]
            if over and len(over) == len(variants):
                least = min(k["dynamic_shared_bytes"] for k in over)
                sentence = f"{name} needs {least} bytes of shared memory, a block on {self.target.arch} has {limit}"
            else:
                self._notes += [
                    f"config {k['config']} of {name} needs more shared memory than {self.target.arch} has" for k in over
                ]
        return sentence

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        from triton.runtime import driver
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        launch, tune = JITFunction.run, Autotuner.run
        os.environ["TRITON_DUMP_PTXAS_LOG"] = "1"
        driver.set_active(StubDriver(self.target.number))

        def compile_only(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            printed = io.StringIO()
            try:
                with contextlib.redirect_stdout(printed):
                    kernel = launch(function, *args, grid=grid, warmup=True, **kwargs)
            except BaseException as error:
                self._failure = error
                raise
            if kernel is not None:
                self._note(kernel, printed.getvalue())
            return kernel

        def every_config(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            return self._every_config(tuner, *args, **kwargs)

        JITFunction.run = compile_only
        Autotuner.run = every_config
        try:
            yield
        finally:
            JITFunction.run, Autotuner.run = launch, tune

    def _every_config(self, tuner: Any, *args: Any, **kwargs: Any) -> Any:
        """In place of the autotuner's trials. A config that does not compile is left out, as it leaves it out."""
        from triton.compiler.errors import CompileTimeAssertionFailure
        from triton.runtime.errors import OutOfResources, PTXASError

        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        kernel, error, outer = None, None, self._config
        for config in tuner.prune_configs(kwargs):
            values = config.all_kwargs()
            self._config = ", ".join(f"{name}={value}" for name, value in values.items())
            try:
                if config.pre_hook is not None:
                    config.pre_hook({**tuner.nargs, **kwargs, **values})
                kernel = tuner.fn.run(*args, **kwargs, **values)
            except (CompileTimeAssertionFailure, OutOfResources, PTXASError) as failure:
                error = failure
                self._notes.append(f"config {self._config} does not compile: {str(failure).strip().splitlines()[-1]}")
            finally:
                self._config = outer
        tuner.nargs = None
        if kernel is None and error is not None:
            raise error
        return kernel

    def _note(self, kernel: Any, printed: str) -> None:
        if (kernel.hash, self._config) in self._seen:
            return
        listed = resources.read_ptxas(printed) or resources.read_ptxas(self._ptxas_again(kernel.asm["ptx"]))
        name = kernel.metadata.name
        own = next((k for k in listed if k.symbol == name), None) or resources.PtxasKernel(name, self.target.arch)
        self._seen[kernel.hash, self._config] = {
            **own.record(name),
            "dynamic_shared_bytes": kernel.metadata.shared,
            "config": self._config,
            "binary_bytes": len(kernel.asm["cubin"]),
        }

    def _ptxas_again(self, ptx: str) -> str:
        """ptxas' listing of a kernel whose own was not printed: an older Triton, or one from Triton's cache."""
        from triton.backends.nvidia.compiler import get_ptxas

        match = re.search(r"^\.target (sm_\w+)", ptx, re.MULTILINE)
        arch = match.group(1) if match else self.target.arch
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(ptx)
            file.flush()
            command = [get_ptxas(self.target.number).path, "-v", f"--gpu-name={arch}", file.name, "-o", os.devnull]
            return subprocess.run(command, capture_output=True, text=True, errors="replace").stderr
