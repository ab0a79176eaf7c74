"""A Triton kernel, compiled ahead of time: its own Python code runs, and every launch in it compiles instead.

``build`` is the parent's side and imports no Triton. ``compile_launches`` and what it calls run in an "aot" child: a
process with triton and torch imported and without TRITON_INTERPRET, which needs no GPU and must not see one.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import io
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import BuildError, Unavailable
from ..reference.problem import Problem, TensorSpec
from ..spec.model import KernelSpec
from ..toolchain import Target, Toolchain
from .cache import Ahead, Artifact, Cache, content_key
from .launches import Recorder

# Mistakes that no input can bring about or mend; whatever else a kernel's Python raises may come of the zeros it is given.
_PLAIN_MISTAKES = (SyntaxError, ImportError, NameError)


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
    """What a Triton kernel's launches compile to, as a record without a file: where it runs, Triton compiles it again.

    Nothing is cached, as the module's own imports decide what it is. ``flags`` are nvcc's and mean nothing here.
    """
    from ..records import Build, KernelResources

    if ahead is None:
        raise Unavailable(f"{spec.path.name}: no case to compile its launches for")
    started = time.monotonic()
    with cache.scratch() as scratch:
        result = ahead(str(spec.path), spec.entry, target.arch, str(scratch))
    if result["error"]:
        raise BuildError(result["error"]["message"], result["error"]["log"])
    kernels = result["kernels"]
    notes = [*result["notes"], *([f"built at first launch: {result['deferred']}"] if result["deferred"] else [])]
    record = Build(
        backend="triton",
        arch=target.arch,
        compiler=result["compiler"],
        key=content_key([spec.path.read_bytes(), result["compiler"], target.arch]),
        seconds=time.monotonic() - started,
        cached=False,
        binary_bytes=sum(kernel.pop("binary_bytes") for kernel in kernels) or None,
        kernels=tuple(KernelResources(**kernel) for kernel in kernels),
        notes=tuple(notes),
    )
    return Artifact(None, record)


def compile_launches(state: Any, *, path: str, entry: str, arch: str, problem: dict[str, Any], scratch: str) -> dict[str, Any]:
    """In the child: import the module at ``path`` and call ``entry`` on zeros shaped as ``problem`` says.

    Returns ``compiler``; ``kernels`` (fields of ``records.KernelResources`` and ``binary_bytes``, one for each launch and
    autotune config); ``deferred``, the reason why not everything could be compiled without real values or a GPU, or None;
    ``notes``; ``error`` (``message`` with the user's own line, ``log``), or None.
    """
    import triton

    os.environ["TRITON_CACHE_DIR"] = scratch  # of its own: two versions of a kernel, or two workers, never share one
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # what Triton below 3.10 does when nothing is said, said
    sys.dont_write_bytecode = True
    file = Path(path)
    recorder = Recorder(Target(arch))
    deferred, error = None, None
    with recorder.installed(), _as_if_on_gpu():
        try:
            function = _entry(_load(file), entry, file)
            _call(function, Problem.from_json(problem), entry)
        except _Mistake as mistake:
            error = {"message": str(mistake), "log": ""}
        except (Exception, SystemExit) as raised:
            message = _located(raised, file)
            if recorder.failed_with(raised) or isinstance(raised, (*_PLAIN_MISTAKES, SystemExit)):
                error = {"message": message, "log": "".join(traceback.format_exception(raised))}
            else:
                deferred = message
    kernels, notes = recorder.results()
    if not error and (too_much := recorder.over_shared_limit(kernels)):
        error = {"message": f"{file.name}: {too_much}", "log": ""}
    if not kernels and not deferred:
        deferred = f"{entry} launched no Triton kernel on the inputs of this case"
    compiler = f"triton {triton.__version__}"
    return {"compiler": compiler, "kernels": kernels, "deferred": deferred, "notes": notes, "error": error}


class _Mistake(Exception):
    """A call that can't be made, in one sentence."""


def _load(file: Path) -> ModuleType:
    """Import a file under a name of its own; its folder is importable, as it is for a script."""
    name = f"_kopt_{hashlib.sha256(str(file).encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise _Mistake(f"{file.name} can't be imported: it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _entry(module: ModuleType, entry: str, file: Path) -> Callable[..., Any]:
    function = getattr(module, entry, None)
    if not callable(function):
        raise _Mistake(f"{file.name}: {entry} is no function once the module is imported")
    return function  # type: ignore[no-any-return]


def _call(function: Callable[..., Any], problem: Problem, entry: str) -> None:
    """By name, as ``run_kernel(**inputs)``; ``solve`` in order."""
    tensors = {tensor.name: tensor for tensor in problem.tensors}
    values = {}
    for argument in problem.arguments:
        if argument.kind == "tensor":
            values[argument.name] = _zeros(tensors[argument.name])
        elif argument.kind == "scalar":
            values[argument.name] = argument.value
    args, kwargs = (list(values.values()), {}) if entry == "solve" else ([], values)
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise _Mistake(f"{entry} is called with {', '.join(values) or 'no arguments'}: {error}") from None
    with contextlib.redirect_stdout(io.StringIO()):
        function(*args, **kwargs)


def _zeros(spec: TensorSpec) -> Any:
    """Zeros on the CPU. Pages that nobody touches are never filled, so even gigabytes cost nothing."""
    import torch

    dtype = getattr(torch, spec.dtype)
    if spec.strides is None or 0 in spec.shape:
        return torch.zeros(spec.shape, dtype=dtype)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.strides, strict=True))
    return torch.zeros(extent, dtype=dtype).as_strided(spec.shape, spec.strides)


@contextlib.contextmanager
def _as_if_on_gpu() -> Iterator[None]:
    """CPU tensors that say they are on ``cuda:0``: wrappers that check their inputs, or allocate beside them, run as they are."""
    import torch
    from torch.overrides import TorchFunctionMode

    tensor: Any = torch.Tensor

    def on_cpu(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == "cuda" else value
        return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value

    class AsIfOnGpu(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func == tensor.is_cuda.__get__:
                return True
            if func == tensor.device.__get__:
                return torch.device("cuda", 0)
            if func == tensor.cuda:
                return args[0]
            return func(*map(on_cpu, args), **{name: on_cpu(value) for name, value in (kwargs or {}).items()})

    with AsIfOnGpu():
        yield


def _located(error: BaseException, file: Path) -> str:
    """``softmax_triton.py:14: TypeError: ...``, at the deepest line that is the user's own."""
    chain = [error]
    while (nested := chain[-1].__cause__) is not None and nested not in chain:
        chain.append(nested)
    name, line = file.name, 0
    text = next((t for e in reversed(chain) if (t := str(getattr(e, "error_message", None) or ""))), "") or str(error)
    for link in chain:
        if at := _line_in_kernel(link, file):
            line = at
    if isinstance(error, SyntaxError) and error.filename:
        name, line, text = Path(error.filename).name, error.lineno or 0, error.msg
    elif not line:
        for frame in traceback.extract_tb(error.__traceback__):
            if Path(frame.filename).parent == file.parent:
                name, line = Path(frame.filename).name, frame.lineno or 0
    first = text.strip().splitlines()[0] if text.strip() else "no message"
    return f"{name}{f':{line}' if line else ''}: {type(error).__name__}: {first}"


def _line_in_kernel(error: BaseException, file: Path) -> int:
    """The line of the file where Triton's compiler stopped: it counts from the ``def`` of the function it was in."""
    source, line = getattr(error, "src", None), getattr(getattr(error, "node", None), "lineno", None)
    if not isinstance(source, str) or not isinstance(line, int):
        return 0
    text = file.read_text(encoding="utf-8-sig", errors="replace")
    start = text.find(source.rstrip())
    return 0 if start < 0 else text.count("\n", 0, start) + line
