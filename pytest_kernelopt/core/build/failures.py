"""From a compiler's output to the one line that says what is wrong and, where the cause is known, what mends it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import BuildError, KernelError, Unavailable
from ..toolchain import Target, Toolchain

# The first CUDA release that knows an arch, from NVIDIA's release notes.
_FIRST_RELEASE = {
    "75": "10.0", "80": "11.0", "86": "11.1", "87": "11.4", "89": "11.8", "90": "11.8", "90a": "12.0",
    "100": "12.8", "100a": "12.8", "101a": "12.8", "120": "12.8", "120a": "12.8", "103": "12.9", "103a": "12.9",
}  # fmt: skip
_LIBRARIES = ("cublasLt", "cublas", "cudnn", "cufft", "curand", "cusparse", "cusolver")

_ERROR_LINES = re.compile(
    r"^(?:"
    r"[^\n]*\(\d+\): (?:catastrophic )?error[^\n]*"  # cudafe++, cicc
    r"|[^\n:]+:\d+(?::\d+)?: (?:fatal )?error: [^\n]*"  # gcc, clang
    r"|(?:At end of source|Command-line error)[^\n]*"
    r"|ptxas [^\n]*; (?:error|fatal)[^\n]*|(?:ptxas|nvcc|nvlink|cicc|fatbinary|cudafe\+\+) (?:error|fatal)[^\n]*"
    r"|[^\n]*undefined reference to [^\n]*|[^\n]*multiple definition of [^\n]*|[^\n]*\bld: (?:error|cannot)[^\n]*"
    r")$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Attempt:
    """One run of nvcc that failed. ``returncode`` is negative after a signal, as subprocess gives it."""

    log: str
    returncode: int
    target: Target
    toolchain: Toolchain
    file: str

    @property
    def nvcc(self) -> str:
        return f"nvcc {self.toolchain.nvcc.version if self.toolchain.nvcc else ''}".strip()


_Rule = tuple[str, Callable[[Attempt, "re.Match[str]"], str]]


def explain(attempt: Attempt) -> KernelError | Unavailable:
    """The exception to raise. What lies in the machine and not in any kernel (disk, host compiler) is Unavailable."""
    for pattern, reason in _MACHINE:
        if match := re.search(pattern, attempt.log):
            return Unavailable(reason(attempt, match))
    for pattern, cause in _KNOWN:
        if match := re.search(pattern, attempt.log):
            return BuildError(cause(attempt, match), attempt.log)
    if attempt.returncode < 0:
        return BuildError(f"{attempt.file}: {attempt.nvcc} was killed by signal {-attempt.returncode}", attempt.log)
    first = _first_error(attempt.log)
    return BuildError(first or f"{attempt.file}: {attempt.nvcc} failed with exit code {attempt.returncode}", attempt.log)


def _first_error(log: str) -> str:
    match = _ERROR_LINES.search(log)
    line = re.sub(r"\s+", " ", match.group(0)).strip() if match else ""
    return re.sub(r"^ptxas \S+, line (\d+); (error|fatal) ?: ", r"ptxas \2 (PTX line \1): ", line)


def _where(attempt: Attempt, match: re.Match[str]) -> str:
    """The compiler's line that holds the match."""
    start = attempt.log.rfind("\n", 0, match.start()) + 1
    end = attempt.log.find("\n", match.end())
    return re.sub(r"\s+", " ", attempt.log[start : end if end >= 0 else len(attempt.log)]).strip()


def _arch(attempt: Attempt, match: re.Match[str]) -> str:
    arch = match.group(1)
    number = int(re.sub(r"\D", "", arch))
    if number < 75:
        return f"{attempt.nvcc} no longer builds for sm_{arch}: use an older toolkit (--kopt-nvcc), or another arch (--kopt-arch)"
    needed = f", which needs CUDA {_FIRST_RELEASE[arch]} or newer" if arch in _FIRST_RELEASE else ""
    return f"{attempt.nvcc} is too old for sm_{arch}{needed}: use a newer toolkit (--kopt-nvcc), or another arch (--kopt-arch)"


def _host_too_new(attempt: Attempt, match: re.Match[str]) -> str:
    limit = re.search(r"(?:gcc|clang) versions? (?:later|newer) than (\d+)|must be less than (\d+)", attempt.log)
    newest = f" (up to {limit.group(1) or 'below ' + limit.group(2)} is supported)" if limit else ""
    return (
        f"host compiler {attempt.toolchain.host_compiler or match.group(1)} is too new for {attempt.nvcc}{newest}: "
        "name an older one with NVCC_CCBIN=g++-<version> or --kopt-flags='-ccbin g++-<version>'"
    )


def _target(attempt: Attempt, match: re.Match[str]) -> str:
    what, arch = match.groups()
    a = "" if arch.endswith(("a", "f")) else f"; build for {arch}a: --kopt-arch {arch}a"
    return f"{attempt.file}: {what.strip()} is not supported on {arch}{a}"


def _include(attempt: Attempt, match: re.Match[str]) -> str:
    header = match.group("gcc") or match.group("edg")
    line = _where(attempt, match)
    if re.match(r"cutlass/|cute/", header) and attempt.toolchain.cutlass is None:
        return f"{line} (CUTLASS headers were not found: pip install nvidia-cutlass, or set CUTLASS_PATH)"
    return line


def _undefined(attempt: Attempt, match: re.Match[str]) -> str:
    symbol = match.group(1)
    driver = "cuda" if re.match(r"cu[A-Z]", symbol) else ""
    library = next((name for name in _LIBRARIES if symbol.startswith(name)), driver)
    hint = f"link its library: --kopt-flags=-l{library}" if library else "it is declared and never defined"
    return f"{attempt.file}: undefined symbol {symbol} ({hint})"


def _died(attempt: Attempt, match: re.Match[str]) -> str:
    tool, signal = match.groups()
    why = "most likely out of memory: build fewer kernels at once" if signal == "9" else "the compiler itself crashed"
    return f"{attempt.file}: {tool} of {attempt.nvcc} died of signal {signal}, {why}"


_MACHINE: tuple[_Rule, ...] = (
    (
        r"No space left on device|Disk quota exceeded",
        lambda a, m: "no space left on the disk while building: free some, or set KOPT_CACHE_DIR and TMPDIR elsewhere",
    ),
    (
        r"(?:gcc|g\+\+|cc1plus|clang\+\+)['\"]?: (?:command )?not found"
        r"|Failed to preprocess host compiler properties|host compiler .* not found",
        lambda a, m: f"{a.nvcc} needs a host C++ compiler: install g++, or name one with NVCC_CCBIN",
    ),
)

_KNOWN: tuple[_Rule, ...] = (
    (r"Unsupported gpu architecture '(?:compute|sm)_(\w+)'", _arch),
    (r"Value '(?:sm|compute)_(\w+)' is not defined for option '(?:gpu-name|arch|gpu-architecture)'", _arch),
    (r"unsupported (GNU|clang) version", _host_too_new),
    (
        r"Cannot find valid GPU for '-arch=native'",
        lambda a, m: "-arch=native found no GPU and would build for a default arch: remove it and use --kopt-arch",
    ),
    (
        r"Unsupported \.version ([\d.]+); current version is '([\d.]+)'",
        lambda a, m: (
            f"the parts of {a.nvcc} are of different releases (PTX {m.group(1)} against {m.group(2)}): install them together, "
            "pip install 'cuda-toolkit[nvcc,cudart,cccl,crt,nvvm]==<release>'"
        ),
    ),
    (r"(Instruction '[^']+'|Feature '[^']+'|[^\n;:]*?)\s+not supported on \.target '(sm_\w+)'", _target),
    (r"fatal error: (?P<gcc>[^\s:]+): No such file or directory|cannot open source file \"(?P<edg>[^\"]+)\"", _include),
    (r"undefined reference to [`'\"]?([^'\"\n]+?)['\"]?(?:$|\n)", _undefined),
    (r"[Uu]ndefined reference to '([^'\n]+)' in", _undefined),
    (r"'(\w[\w+]*)' died due to signal (\d+)", _died),
    (
        r"cannot find -l(\w+)",
        lambda a, m: f"{a.file}: the linker did not find library {m.group(1)}: give its folder with --kopt-flags=-L<folder>",
    ),
)
