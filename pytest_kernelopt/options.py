"""Every ``--kopt-*`` option and its ini twin as one frozen dataclass, checked once when pytest is configured.

Values stay the strings that the user typed until then, so that they travel to xdist workers as they are.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

if TYPE_CHECKING:
    from .core.evaluate import EvaluatorSettings
    from .core.spec.model import Case


class _Refused(ValueError):
    """A value that an option does not take; the text says what it takes."""


def _number(text: str, expected: str) -> float:
    """A number as users write them: ``1e6``, ``0.5``, ``2**20``."""
    from .core.spec import literals

    try:
        value = literals.parse(text)
    except literals.NotLiteral:
        value = None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Refused(expected)
    return value


def _integer(least: int, expected: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = _number(text, expected)
        if value < least or value != int(value):
            raise _Refused(expected)
        return int(value)

    return read


def _real(expected: str, *, zero: bool) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = _number(text, expected)
        if value < 0 or (value == 0 and not zero):
            raise _Refused(expected)
        return float(value)

    return read


def _choice(*valid: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in valid:
            raise _Refused(f"one of {', '.join(valid)}")
        return text

    return read


def _arch(text: str) -> str:
    from .core.errors import KernelError
    from .core.toolchain import Target

    try:
        return Target.parse(text).arch
    except KernelError:
        raise _Refused("one arch such as sm_90a, 90a or 9.0") from None


def _program(text: str) -> str:
    found = shutil.which(text)
    if found is None:
        raise _Refused("the path of an nvcc that can be run")
    return found


def _flags(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise _Refused(f"compiler flags with balanced quotes ({error})") from None


class _Option(NamedTuple):
    """One option that takes a value: ``--kopt-max-time`` and the ini option ``kopt_max_time``."""

    name: str
    metavar: str
    read: Callable[[str], Any]
    help: str

    @property
    def flag(self) -> str:
        return f"--kopt-{self.name.replace('_', '-')}"


_OPTIONS = (
    _Option("backend", "NAME", _choice("cuda", "cutlass", "triton"), "Take kernels for this backend: cuda, cutlass or triton"),
    _Option("arch", "ARCH", _arch, "Architecture to compile for, such as sm_90a (default: that of the GPU)"),
    _Option(
        "gpu", "INDEX", _integer(0, "the index of a GPU, 0 or above"), "GPU to use, as CUDA numbers the visible ones (default: 0)"
    ),
    _Option("seed", "N", _integer(0, "a whole number, 0 or above"), "Seed of the generated inputs (default: 0)"),
    _Option(
        "ptr_size", "N", _integer(1, "a number of elements, 1 or above"), "Elements behind a pointer of which nothing is known"
    ),
    _Option("nvcc", "PATH", _program, "The nvcc to compile with (default: found on PATH, in CUDA_HOME or in wheels)"),
    _Option("flags", "FLAGS", _flags, "Further compiler flags, written --kopt-flags='--use_fast_math -DN=4'"),
    _Option("atol", "X", _real("a number, 0 or above", zero=True), "Absolute tolerance (default: by dtype)"),
    _Option("rtol", "X", _real("a number, 0 or above", zero=True), "Relative tolerance (default: by dtype)"),
    _Option("trials", "N", _integer(1, "a whole number, 1 or above"), "Seeds that every case is verified with"),
    _Option("cache", "STATE", _choice("cold", "warm"), "State of the L2 cache when timed: cold (default) or warm"),
    _Option("warmup", "MS", _real("milliseconds, 0 or above", zero=True), "Least warm-up before timing, in milliseconds"),
    _Option("repeat", "N", _integer(1, "a whole number, 1 or above"), "Samples to take (default: until the median is settled)"),
    _Option(
        "max_time", "SECONDS", _real("seconds, above 0", zero=False), "Most time that sampling one case may take, in seconds"
    ),
    _Option(
        "timeout", "SECONDS", _real("seconds, above 0", zero=False), "Time after which a kernel that hangs is killed, in seconds"
    ),
)
_PLAIN = {option.name: option for option in _OPTIONS}


def add_options(parser: pytest.Parser) -> None:
    """Register every option of this plugin; none takes an optional value, so none swallows a path."""
    group = parser.getgroup("kernelopt", "GPU kernels")
    group.addoption(
        "--kopt-dims",
        metavar="DIMS",
        action="append",
        help='Try this case, "rows=4096,cols=1024", and not the reference\'s. Repeatable.',
    )
    parser.addini("kopt_dims", "Default of --kopt-dims, one case a line", type="linelist", default=[])
    for option in _OPTIONS:
        group.addoption(option.flag, metavar=option.metavar, help=option.help)
        parser.addini(f"kopt_{option.name}", f"Default of {option.flag}", default=None)
    group.addoption("--kopt-preflight", action="store_true", help="Report on GPU, toolchain and references before the run")
    group.addoption("--kopt-preflight-only", action="store_true", help="Report and stop: exit 0 when ready, 10 when not")
    parser.addini("kopt_preflight", "Default of --kopt-preflight", type="bool", default=False)
    group.addoption("--kopt-json", metavar="PATH", help="Write all results of the kernels to this JSON file")
    parser.addini("kopt_json", "Default of --kopt-json, relative to the ini file", default=None)


@dataclass(frozen=True, eq=False)  # never compared; what a dataclass generates is paid at every start of pytest
class Options:
    """The command line and ini file as values. None: not given, the default is found by who needs it.

    ``warmup`` is in milliseconds, ``max_time`` and ``timeout`` are in seconds, ``ptr_size`` in elements.
    """

    dims: tuple[Case, ...] = ()
    backend: Literal["cuda", "cutlass", "triton"] | None = None
    arch: str | None = None
    gpu: int | None = None
    seed: int | None = None
    ptr_size: int | None = None
    nvcc: str | None = None
    flags: tuple[str, ...] | None = None
    atol: float | None = None
    rtol: float | None = None
    trials: int | None = None
    cache: Literal["cold", "warm"] | None = None
    warmup: float | None = None
    repeat: int | None = None
    max_time: float | None = None
    timeout: float | None = None
    preflight: bool = False
    preflight_only: bool = False
    json: Path | None = None

    @classmethod
    def from_config(cls, config: pytest.Config) -> Options:
        """Read and check all of it; ``pytest.UsageError`` in one sentence with the valid values."""
        given: dict[str, Any] = {name: _value(config, option) for name, option in _PLAIN.items()}
        only = bool(config.getoption("kopt_preflight_only"))
        if only and config.getoption("dist", "no") != "no":
            raise pytest.UsageError("--kopt-preflight-only runs no item, so it cannot be spread over xdist workers: add -n0")
        return cls(
            dims=_dims(config),
            preflight=bool(config.getoption("kopt_preflight") or config.getini("kopt_preflight")),
            preflight_only=only,
            json=_json(config),
            **given,
        )

    def settings(self) -> EvaluatorSettings:
        """What the evaluator is made with; what was not given keeps the evaluator's own default."""
        from .core.evaluate import EvaluatorSettings

        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name in _PLAIN}
        given["warmup_ms"] = given.pop("warmup")
        return EvaluatorSettings(**{name: value for name, value in given.items() if value is not None})


def as_typed(config: pytest.Config) -> list[str]:
    """The options on the command line that decide what a kernel is asked, to be typed again."""
    typed = [f"--kopt-dims={dims}" for dims in config.getoption("kopt_dims") or ()]
    typed += [f"{o.flag}={given}" for o in _OPTIONS if (given := config.getoption(f"kopt_{o.name}")) is not None]
    return [shlex.quote(argument) for argument in typed]


def _value(config: pytest.Config, option: _Option) -> Any:
    raw, name = config.getoption(f"kopt_{option.name}"), option.flag
    if raw is None:
        raw, name = config.getini(f"kopt_{option.name}"), f"kopt_{option.name} in {_ini_name(config)}"
    if raw is None or (raw == "" and not name.startswith("--")):
        return None
    try:
        return option.read(str(raw))
    except _Refused as refused:
        raise pytest.UsageError(f"{name}: expected {refused}, got {raw!r}") from None


def _dims(config: pytest.Config) -> tuple[Case, ...]:
    raw = config.getoption("kopt_dims") or config.getini("kopt_dims")
    if not raw:
        return ()
    from .core.errors import KernelError
    from .core.spec import parse_dims

    try:
        return tuple(dict.fromkeys(parse_dims(text) for text in raw))
    except KernelError as error:
        raise pytest.UsageError(str(error)) from None


def _json(config: pytest.Config) -> Path | None:
    if raw := config.getoption("kopt_json"):
        return Path(config.invocation_params.dir, raw)
    if raw := config.getini("kopt_json"):
        return (config.inipath.parent if config.inipath else config.rootpath) / str(raw)
    return None


def _ini_name(config: pytest.Config) -> str:
    return config.inipath.name if config.inipath else "the ini options"
