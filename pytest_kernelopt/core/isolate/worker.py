"""What a candidate's process does: load one kernel version, map the referee's memory, call it.

Functions here take the child's state first and are called by name from the parent (``Child.call``).
"""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..dtypes import DTYPES
from ..errors import KernelError
from . import memory
from .child import ChildState

LAST_ERROR, ERROR_TEXT = "kopt_last_error", "kopt_error_text"  # exported by core/build/last_error.cuh


def load_library(state: ChildState, *, path: str, entry: str, returns_status: bool) -> None:
    """Load a built ``.cu``. Its symbols come first and stay its own, so that a helper may be named like a libc function."""
    if state.mode == "gpu":
        memory.driver()  # torch's context first: the library's own runtime then joins it
    library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    function = getattr(library, entry)
    function.restype = ctypes.c_int if returns_status else None
    state.objects["function"] = function
    state.objects["last_error"] = getattr(library, LAST_ERROR, None)
    state.objects["error_text"] = getattr(library, ERROR_TEXT, None)
    state.objects["style"] = "library"
    state.objects["returns_status"] = returns_status


def load_module(state: ChildState, *, path: str, entry: str, module_name: str) -> None:
    """Import a Triton kernel file from its own path."""
    if state.mode == "interpreter":
        _one_config_each()
        _constants_before_tensors()
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise KernelError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    sys.path.insert(0, str(Path(path).parent))
    spec.loader.exec_module(module)
    state.objects["module"] = module
    state.objects["function"] = getattr(module, entry)
    state.objects["style"] = "module" if entry == "run_kernel" else "positional"


def _one_config_each() -> None:
    """The interpreter has no device to time configs on, so an autotuned kernel runs with its first config."""
    from triton.runtime.autotuner import Autotuner

    original: Callable[..., Any] = Autotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.configs = self.configs[:1]
        return original(self, *args, **kwargs)

    Autotuner.run = run


def _constants_before_tensors() -> None:
    """The compiler takes ``CONSTANT * tensor`` with a global ``tl.constexpr``; the interpreter makes a constant of it."""
    import triton.language as tl

    def deferring(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, other: NotImplemented if isinstance(other, tl.tensor) else method(self, other)

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "xor"):
        setattr(tl.constexpr, f"__{name}__", deferring(getattr(tl.constexpr, f"__{name}__")))


def setup(state: ChildState, *, dims: dict[str, Any], seed: int) -> dict[str, Any]:
    """Call the module's own ``setup``; its tensors are kept for ``adopt_setup`` and only their forms are returned."""
    import torch

    function = state.objects["module"].setup
    takes_seed = "seed" in inspect.signature(function).parameters or any(
        p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values()
    )
    given = function(**({"seed": seed} if takes_seed else {}), **dims)
    inputs, outputs = (given.get("inputs"), given.get("outputs")) if isinstance(given, dict) else (None, None)
    if not isinstance(inputs, dict) or not isinstance(outputs, list | tuple) or not all(isinstance(n, str) for n in outputs):
        raise KernelError('setup() must return {"inputs": {...}, "outputs": [...]}')
    state.objects["setup"] = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    forms: dict[str, Any] = {}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            forms[name] = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
        elif isinstance(value, bool | int | float | str):
            forms[name] = value
        else:
            raise KernelError(f"setup() gives '{name}' as a {type(value).__name__}: inputs are tensors, numbers and strings")
    return {"inputs": forms, "outputs": list(outputs)}


def adopt_setup(state: ChildState) -> None:
    """Copy what ``setup`` made into the referee's memory."""
    for name, tensor in state.objects["setup"].items():
        for views in state.objects["sets"]:
            if name in views:
                views[name].copy_(tensor)


def attach(state: ChildState, *, sets: list[list[dict[str, Any]]]) -> None:
    """Map every tensor of every set of buffers; a set is one whole group of arguments."""
    state.objects["blocks"] = []
    state.objects["sets"] = []
    for layouts in sets:
        views = {}
        for layout in layouts:
            block = memory.MappedBlock(layout["block"], state.received)
            state.objects["blocks"].append(block)
            views[layout["name"]] = memory.view(block, layout)
        state.objects["sets"].append(views)


def detach(state: ChildState) -> None:
    """Unmap everything, after the device has finished with it."""
    synchronize(state)
    for name in ("sets", "calls", "targets", "setup"):
        state.objects.pop(name, None)
    for block in state.objects.pop("blocks", []):
        block.unmap()
    if state.mode == "gpu":
        import torch

        torch.cuda.empty_cache()


def synchronize(state: ChildState) -> None:
    if state.mode == "gpu":
        import torch

        torch.cuda.synchronize()


def prepare(state: ChildState, *, arguments: list[dict[str, Any]], returned: list[str]) -> None:
    """Bind the arguments once for each set, so that a timed call does nothing but call."""
    bind = _bind_library if state.objects["style"] == "library" else _bind_python
    state.objects["calls"] = [bind(state, arguments, views) for views in state.objects["sets"]]
    state.objects["returned"] = returned


def _stream(state: ChildState) -> int:
    import torch

    return int(torch.cuda.current_stream().cuda_stream) if state.mode == "gpu" else 0


def _bind_library(state: ChildState, arguments: list[dict[str, Any]], views: dict[str, Any]) -> Callable[[], Any]:
    function = state.objects["function"]
    values: list[Any] = []
    for argument in arguments:
        if argument["kind"] == "tensor":
            values.append(ctypes.c_void_p(views[argument["name"]].data_ptr()))
        elif argument["kind"] == "stream":
            values.append(ctypes.c_void_p(_stream(state)))
        else:
            values.append(_scalar(argument))
    function.argtypes = [type(value) for value in values]
    return lambda: function(*values)


def _scalar(argument: dict[str, Any]) -> Any:
    """A by-value argument as C takes it; half, bf16 and fp8 classes travel as their bits."""
    import torch

    kind = DTYPES[argument["dtype"]]
    if kind.ctype is not None:
        return kind.ctype(argument["value"])
    value = torch.tensor(argument["value"], dtype=getattr(torch, argument["dtype"]))
    return ctypes.c_uint16(int(value.view(torch.int16))) if kind.itemsize == 2 else ctypes.c_uint8(int(value.view(torch.uint8)))


def _bind_python(state: ChildState, arguments: list[dict[str, Any]], views: dict[str, Any]) -> Callable[[], Any]:
    function = state.objects["function"]
    values = {a["name"]: views[a["name"]] if a["kind"] == "tensor" else a["value"] for a in arguments}
    if state.objects["style"] == "positional":
        positional = tuple(values.values())
        return lambda: function(*positional)
    return lambda: function(**values)


def call(state: ChildState, *, index: int = 0) -> dict[str, Any]:
    """One call on one set, waited for. ``seconds`` is host time from the call to the end of all device work.

    ``status`` is a returned status, ``launch_error`` the library's last CUDA error (None: none), and ``returned`` the forms
    of the tensors that were handed back; those whose form fits are copied to the referee's.
    """
    synchronize(state)
    start = time.perf_counter()
    result = state.objects["calls"][index]()
    error = last_error(state)
    synchronize(state)
    seconds = time.perf_counter() - start
    status = result if state.objects.get("returns_status") else 0
    forms = take_returned(state, result, index)
    return {"seconds": seconds, "status": status, "launch_error": error, "returned": forms}


def last_error(state: ChildState) -> dict[str, Any] | None:
    """The last error of the library's own CUDA runtime, such as a launch that was refused; reading clears it."""
    function = state.objects.get("last_error")
    code = int(function()) if function is not None and state.mode == "gpu" else 0
    if not code:
        return None
    text = state.objects["error_text"]
    text.restype = ctypes.c_char_p
    return {"code": code, "text": text(code).decode(errors="replace")}


def take_returned(state: ChildState, result: Any, index: int) -> list[dict[str, Any]] | None:
    """Copy the tensors that a call on one set handed back to the referee's memory, where their form fits; all the forms."""
    views = state.objects["sets"][index]
    names = state.objects["returned"]
    if not names:
        return None
    import torch

    forms = []
    with torch.no_grad():
        for name, value in _by_name(result, names):
            form: dict[str, Any] = {"name": str(name), "type": f"{type(value).__module__}.{type(value).__qualname__}"}
            if type(value) is torch.Tensor:
                form["dtype"] = str(value.dtype).removeprefix("torch.")
                form["shape"], form["device"] = list(value.shape), value.device.type
                form["strides"] = list(value.stride()) if value.layout is torch.strided else [str(value.layout)]
                target = views.get(name)
                if target is not None and _as(target) == _as(value):
                    target.copy_(value)
            forms.append(form)
    synchronize(state)
    return forms


def _as(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.device, tensor.layout


def _by_name(result: Any, names: list[str]) -> list[tuple[str, Any]]:
    """What was handed back, by the names of the outputs: of a dict by its keys, of a tuple or list in order."""
    if isinstance(result, dict):
        return list(result.items())
    if len(names) == 1:
        return [(names[0], result)]
    if isinstance(result, tuple | list):
        return [(names[i] if i < len(names) else f"number {i + 1}", value) for i, value in enumerate(result)]
    return [("", result)]
