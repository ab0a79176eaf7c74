"""CUTLASS and CuTe: a CUDA build with their headers, and a look at the SASS for what the source asked for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ..errors import BuildError
from ..toolchain import Target, Toolchain
from .sources import live_code

# Release builds of CUTLASS switch asserts off; with them a failing TMA descriptor aborts the whole process.
DEFINES = ("-DNDEBUG",)
_SM90 = re.compile(r"\barch\s*::\s*Sm90\b")
_COLLECTIVE = re.compile(r"\bCollective(?:Builder|Mma)\b|\bMainloopSm90\w*GmmaWarpSpecialized\w*")
_GMMA_ATOM = re.compile(r"\bSM90_64x\d+x\d+_\w+")
_GMMA_SASS = re.compile(r"\b[HIQB]GMMA\b")  # f16/bf16/tf32, int8, fp8, binary
_SASS_SECONDS = 120.0


def flags(toolchain: Toolchain) -> tuple[str, ...]:
    """What a source that includes ``cutlass/`` or ``cute/`` is compiled with beside the flags of any CUDA file."""
    folders = toolchain.cutlass.include if toolchain.cutlass else ()
    return ("--expt-relaxed-constexpr", *DEFINES, *(f"-I{folder}" for folder in folders))


def asks_for_sm90(source: str) -> bool:
    """Whether live code names Sm90 collectives or warp-group MMA atoms, which run on nothing but ``sm_90a``.

    ``arch::Sm90`` alone does not: the 2.x API takes it as a tag for ordinary tensor-core instructions.
    """
    code = live_code(source)
    return bool(_GMMA_ATOM.search(code) or (_SM90.search(code) and _COLLECTIVE.search(code)))


def check_sass(library: Path, source: str, target: Target, toolchain: Toolchain, name: str) -> tuple[str, ...]:
    """Refuse a library that was compiled without the warp-group MMA its source asks for: on the wrong arch CUTLASS
    compiles such a kernel to an empty body, without a warning. Returns notes; BuildError when it is so.
    """
    if not asks_for_sm90(source):
        return ()
    if toolchain.cuobjdump is None:
        return ("SASS was not looked at: cuobjdump was not found",)
    try:
        done = subprocess.run(
            [toolchain.cuobjdump, "-sass", library], capture_output=True, text=True, errors="replace", timeout=_SASS_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return (f"SASS was not looked at: {error}",)
    if done.returncode != 0:
        return (f"SASS was not looked at: cuobjdump failed ({done.stderr.strip()[-200:]})",)
    if _GMMA_SASS.search(done.stdout):
        return ()
    mend = "no kernel instantiates them" if target.arch == "sm_90a" else "only sm_90a has it: --kopt-arch sm_90a"
    raise BuildError(f"{name}: the source asks for Sm90 collectives, and its SASS for {target.arch} holds no HGMMA; {mend}")
