"""What each compiled kernel takes: registers, stack, spills, static shared memory, as ptxas prints them for ``-v``."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(sm_\w+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers([^\n]*)")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_ADVICE = re.compile(r"(Potential Performance Loss: [^\n]+)")
_LONGEST = 100


@dataclass(frozen=True)
class PtxasKernel:
    """One entry function of ptxas' listing, by its mangled name; sizes in bytes. Dynamic shared memory is never listed."""

    symbol: str
    arch: str
    registers: int | None = None
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    static_shared_bytes: int | None = None

    def record(self, name: str) -> dict[str, Any]:
        """The fields of ``records.KernelResources``, under the name to show."""
        fields = asdict(self)
        del fields["symbol"]
        return {"name": name, **fields}


def read_ptxas(log: str) -> tuple[PtxasKernel, ...]:
    """Every kernel in the output of ``ptxas -v``. Lines about device functions, which list a stack too, are not mixed in."""
    return tuple(_kernels(log))


def _kernels(log: str) -> Iterator[PtxasKernel]:
    headers = list(_ENTRY.finditer(log))
    ends = [*(header.start() for header in headers[1:]), len(log)]
    for header, end in zip(headers, ends, strict=False):
        symbol, arch = header.groups()
        text = log[header.end() : end]
        stack = None
        for properties in _PROPERTIES.finditer(text):
            if properties.group(1) == symbol:
                stack = _STACK.match(text[properties.end() :].lstrip())
        used = _USED.search(text)
        shared = _SHARED.search(used.group(2)) if used else None
        yield PtxasKernel(
            symbol,
            arch,
            registers=int(used.group(1)) if used else None,
            stack_bytes=int(stack.group(1)) if stack else None,
            spill_store_bytes=int(stack.group(2)) if stack else None,
            spill_load_bytes=int(stack.group(3)) if stack else None,
            static_shared_bytes=int(shared.group(1)) if shared else (0 if used else None),
        )


def advice(log: str) -> tuple[str, ...]:
    """ptxas' own warnings of lost performance (serialised wgmma, for one), each once."""
    return tuple(dict.fromkeys(_ADVICE.findall(log)))


def readable_names(symbols: tuple[str, ...]) -> tuple[str, ...]:
    """Mangled names as people read them, without parameters; as they are where there is no ``c++filt``."""
    tool = shutil.which("c++filt")
    if not symbols or not tool:
        return symbols
    try:
        done = subprocess.run([tool], input="\n".join(symbols), capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return symbols
    lines = done.stdout.splitlines()
    return tuple(shorten(line) for line in lines) if len(lines) == len(symbols) else symbols


def shorten(demangled: str) -> str:
    """``void ns::add<float, 4>(float const*, int)`` to ``ns::add<float, 4>``; template arguments go when that is still long."""
    text = demangled.replace("(anonymous namespace)", "{anonymous}").replace("{lambda(", "{lambda{")
    depth, cut, name_start, angles = 0, len(text), 0, []
    for index, character in enumerate(text):
        if character in "<({[":
            if character == "(" and depth == 0:
                cut = index
                break
            if character == "<" and depth == 0:
                angles.append(index)
            depth += 1
        elif character in ">)}]":
            depth -= 1
        elif character == " " and depth == 0:
            name_start = index + 1
    name = text[name_start:cut]
    if len(name) > _LONGEST and angles and angles[-1] > name_start:
        name = text[name_start : angles[-1]] + "<...>"
    return name.replace("{anonymous}", "(anonymous namespace)").replace("{lambda{", "{lambda(")[:_LONGEST]
