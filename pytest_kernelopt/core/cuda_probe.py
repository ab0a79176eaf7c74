"""What the CUDA driver says of its devices, in the order in which ``cuda:0``, ``cuda:1``... count them.

Run as a script in a process of its own (see ``device``): the driver is started there, and no context is made. Standard
library only. Prints ``{"devices": [...], "error": null | {"code": int, "name": str}}``; code 0 is a driver that isn't there.
"""

from __future__ import annotations

import ctypes
import json
import uuid
from typing import Any

# CUdevice_attribute values of cuda.h; a clock or a width that the driver withholds is null, the rest it always gives
_ATTRIBUTES = {
    "clock_khz": 13,
    "sm_count": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_bytes": 38,
    "major": 75,
    "minor": 76,
}


def describe() -> dict[str, Any]:
    """The visible devices: uuid (bare, without ``GPU-`` or ``MIG-``), name, memory_bytes and the attributes above."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"devices": [], "error": {"code": 0, "name": str(error)}}
    code = cuda.cuInit(0)
    count = ctypes.c_int()
    code = code or cuda.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return {"devices": [], "error": {"code": code, "name": _name(cuda, code)}}
    return {"devices": [_device(cuda, ordinal) for ordinal in range(count.value)], "error": None}


def _device(cuda: ctypes.CDLL, ordinal: int) -> dict[str, Any]:
    handle = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(handle), ordinal)
    raw = ctypes.create_string_buffer(16)
    # the second version tells the instances of one MIG GPU apart; drivers before CUDA 11.4 lack it
    getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)(raw, handle)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, len(name), handle)
    memory = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
    found: dict[str, Any] = {
        "uuid": str(uuid.UUID(bytes=raw.raw)),
        "name": name.value.decode(errors="replace"),
        "memory_bytes": memory.value,
    }
    for key, attribute in _ATTRIBUTES.items():
        value = ctypes.c_int()
        failed = cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
        found[key] = None if failed else value.value
    return found


def _name(cuda: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    failed = cuda.cuGetErrorName(code, ctypes.byref(text))
    return "CUDA error" if failed or not text.value else text.value.decode()


if __name__ == "__main__":
    print(json.dumps(describe()))
