"""What every check of the preflight is given."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..build.cuda import run
from ..environment import Torch
from ..spec.model import Backend, KernelSpec
from ..toolchain import Target, Toolchain

if TYPE_CHECKING:
    from ..records import Check, Gpu

COMPILE_SECONDS = 300.0


@dataclass(frozen=True)
class Context:
    """The machine as found and what is asked of it. ``why_no_gpu`` is empty when there is one; ``folder`` is scratch.

    ``backends`` are those of the collected kernels, all three when nothing was collected.
    """

    specs: Sequence[KernelSpec]
    backends: frozenset[Backend]
    toolchain: Toolchain
    target: Target
    gpu: Gpu | None
    why_no_gpu: str
    torch: Torch | None
    environ: Mapping[str, str]
    cache: Path
    folder: Path
    refused: Sequence[str] = ()

    @property
    def program(self) -> Path | None:
        """A CUDA program that launches one kernel, once the check of nvcc could compile it."""
        path = self.folder / "program"
        return path if path.is_file() else None

    @property
    def needs_nvcc(self) -> bool:
        return bool(self.backends & {"cuda", "cutlass"})

    def execute(self, command: Sequence[str | Path], *, seconds: float = COMPILE_SECONDS) -> tuple[int | None, str]:
        """Exit status (None: killed after ``seconds``) and all output of a command that runs in the scratch folder."""
        from ..errors import Unavailable

        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".log") as log:
            path = Path(log.name)
            environment = {**self.environ, "TMPDIR": str(self.folder), "LC_ALL": "C"}
            try:
                status = run([str(c) for c in command], cwd=self.folder, environment=environment, log=path, timeout=seconds)
            except Unavailable as error:
                return 127, str(error)
            return status, path.read_text(encoding="utf-8", errors="replace")


def result(
    name: str,
    status: Literal["ok", "warning", "missing"],
    detail: str,
    remedy: str | None = None,
    *,
    required: bool = False,
) -> Check:
    from ..records import Check

    return Check(name=name, status=status, detail=detail, remedy=remedy, required=required)


def first_line(output: str, status: int | None) -> str:
    """The line that says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    if status is None:
        return "it did not end in time"
    return (telling or lines or [f"exit status {status}"])[0]


def output_of(command: Sequence[str | Path], environ: Mapping[str, str]) -> str:
    """What a quick command prints, empty when it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=30
        )
        return done.stdout if done.returncode == 0 else ""
    return ""
