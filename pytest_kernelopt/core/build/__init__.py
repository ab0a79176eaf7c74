"""From a kernel file to what can be loaded, and what it takes: one function for each backend, behind one Protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..spec.model import KernelSpec
from ..toolchain import Target, Toolchain
from . import cuda, triton
from .cache import Ahead, Artifact, Cache

__all__ = ["BACKENDS", "Ahead", "Artifact", "Backend", "Cache", "build"]


class Backend(Protocol):
    """Builds one kernel for one arch. ``flags`` are the user's compiler flags, ``timeout`` is in seconds.

    ``ahead`` runs a Triton kernel's launches in a child that compiles and does not launch (:func:`triton.compile_launches`).
    """

    def __call__(
        self,
        spec: KernelSpec,
        target: Target,
        toolchain: Toolchain,
        cache: Cache,
        *,
        flags: Sequence[str] = (),
        timeout: float = 300.0,
        ahead: Ahead | None = None,
    ) -> Artifact: ...


BACKENDS: Mapping[str, Backend] = {"cuda": cuda.build, "cutlass": cuda.build, "triton": triton.build}


def build(
    spec: KernelSpec,
    target: Target,
    toolchain: Toolchain,
    cache: Cache,
    *,
    flags: Sequence[str] = (),
    timeout: float = 300.0,
    ahead: Ahead | None = None,
) -> Artifact:
    """The build of ``spec`` by its backend. BuildError: it does not compile; Unavailable: this machine can't build it."""
    return BACKENDS[spec.backend](spec, target, toolchain, cache, flags=flags, timeout=timeout, ahead=ahead)
