"""``kopt:`` lines in the comments of a kernel file: constants to tune and compiler flags from an allow-list."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from pathlib import Path

from ..errors import KernelError
from .model import Directives
from .place import place

_LINE = re.compile(r"[\s/*#!<]*kopt\s*:(.*?)(?:\*/)?\s*$")
_TUNE = re.compile(r"tune\s+([A-Za-z_]\w*)\s*=(.*)")
_FLAGS = re.compile(r"flags\s*=(.*)")
_VALUE = re.compile(r"-?[\w.]+")

_BOOLEAN = "(?:true|false)"
_ALLOWED = re.compile(
    "|".join(
        (
            r"--?use_fast_math",
            rf"--?(?:fmad|ftz|prec-div|prec-sqrt)={_BOOLEAN}",
            r"--?maxrregcount=\d{1,3}",
            r"-O[0-3]",
            r"--?(?:extra-device-vectorization|restrict|expt-relaxed-constexpr|extended-lambda|expt-extended-lambda)",
            r"--?std=c\+\+(?:17|20)",
            r"-D[A-Za-z_]\w*(?:=[\w.+-]*)?",
        )
    )
)
_ALLOWED_PTXAS = re.compile(
    r"-O[0-3]|-v|--verbose|--?(?:dlcm|dscm|def-load-cache|def-store-cache)=[a-z]{2}"
    r"|--?allow-expensive-optimizations=(?:true|false)|--?warn-(?:on-)?spills|--?register-usage-level=\d{1,2}"
)
_WITH_VALUE = re.compile(r"--?(?:maxrregcount|std|fmad|ftz|prec-div|prec-sqrt|ptxas-options)|-Xptxas|-D")
_PTXAS = re.compile(r"(?:-Xptxas|--?ptxas-options)=(.*)")


def parse(lines: Iterable[tuple[int, str]], path: Path, constants: Collection[str]) -> Directives:
    """The directives in comment lines, each a (line number, text) pair; ``constants`` are the names that can be tuned."""
    tune: dict[str, tuple[str, ...]] = {}
    flags: list[str] = []
    triton = path.suffix == ".py"
    for line, text in _directive_lines(lines):
        where = place(path, line)
        if (match := _TUNE.fullmatch(text)) is not None:
            name = match[1]
            if name in tune:
                raise KernelError(f"{where}: `{name}` is tuned twice: give all of its values in one line")
            if name not in constants:
                needed = f"a module-level constant `{name} = ...`" if triton else f"a `#define {name} ...`"
                raise KernelError(f"{where}: `kopt: tune {name}` needs {needed} in this file, and there is none")
            tune[name] = _values(match[2], name, where)
        elif (match := _FLAGS.fullmatch(text)) is not None:
            if triton:
                raise KernelError(f"{where}: `kopt: flags` is for nvcc; a Triton kernel has no compiler flags")
            flags += check_flags(match[1], where)
        else:
            raise KernelError(f"{where}: unknown directive `kopt: {text}`: known are `tune NAME = a, b` and `flags = ...`")
    return Directives(tuple(tune.items()), tuple(flags))


def _directive_lines(lines: Iterable[tuple[int, str]]) -> Iterable[tuple[int, str]]:
    for first, comment in lines:
        if "kopt" not in comment:
            continue
        for offset, text in enumerate(comment.split("\n")):
            if (match := _LINE.match(text)) is not None:
                yield first + offset, match[1].strip()


def _values(text: str, name: str, where: str) -> tuple[str, ...]:
    values = tuple(value.strip() for value in text.split(","))
    for value in values:
        if not _VALUE.fullmatch(value):
            shown = f"`{value}` is no" if value else "there is an empty"
            raise KernelError(f"{where}: `kopt: tune {name}`: {shown} number or name: write `tune {name} = 64, 128`")
    if len(set(values)) < len(values):
        raise KernelError(f"{where}: `kopt: tune {name}` names a value twice")
    return values


def check_flags(text: str, where: str) -> list[str]:
    """nvcc flags as a kernel file may ask for them, one argument each (``-maxrregcount 64`` becomes ``-maxrregcount=64``).

    Raises KernelError for every flag that is not on the allow-list: none may run a program, read or write a file, or
    change what the launch means.
    """
    try:
        given = shlex.split(text)
    except ValueError as error:
        raise KernelError(f"{where}: the flags cannot be split into words ({error})") from None
    if not given:
        raise KernelError(f"{where}: `kopt: flags` names no flag")
    flags: list[str] = []
    while given:
        flag = given.pop(0)
        if _WITH_VALUE.fullmatch(flag) and given:
            flag += ("" if flag == "-D" else "=") + given.pop(0)
        _check_flag(flag, where)
        flags.append(flag)
    return flags


def _check_flag(flag: str, where: str) -> None:
    ptxas = _PTXAS.fullmatch(flag)
    if ptxas is None and _ALLOWED.fullmatch(flag):
        return
    if ptxas is not None and all(_ALLOWED_PTXAS.fullmatch(part) for part in ptxas[1].split(",")):
        return
    raise KernelError(
        f"{where}: the flag `{flag}` is not allowed in a kernel file: allowed are optimisation and math flags, `-D` and some of "
        "`-Xptxas`; give others with --kopt-flags"
    )


def defined_by(flags: Iterable[str]) -> dict[str, str]:
    """The macros that ``-D`` flags define."""
    pairs = (flag[2:].partition("=") for flag in flags if flag.startswith("-D"))
    return {name: value if equals else "1" for name, equals, value in pairs}
