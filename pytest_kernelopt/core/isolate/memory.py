"""Blocks of memory that the referee owns and a candidate maps: CUDA IPC on a GPU, memfd under the interpreter.

Every block is an allocation of its own, a multiple of 2 MiB: that is the unit a CUDA IPC handle exposes, so nothing
else may live in it. Runs in children; torch is imported inside functions.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import mmap
import os
from typing import TYPE_CHECKING, Any

from ..errors import Unavailable

if TYPE_CHECKING:
    import torch

PAGE = 2 << 20
_LAZY_PEER_ACCESS = 1
_OUT_OF_MEMORY = 2


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


class DeviceArray:
    """Bytes at a device address, as torch takes them without a copy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


@functools.cache
def driver() -> Any:
    """The CUDA driver library, with torch's context current in this thread."""
    import torch

    torch.zeros(1, device="cuda")
    return ctypes.CDLL("libcuda.so.1")


def check(status: int, what: str) -> None:
    """Raise on a CUDA driver status that is not success."""
    if status == 0:
        return
    reason = error_text(status)
    if status == _OUT_OF_MEMORY:
        raise Unavailable(f"the GPU has not enough free memory: {what}")
    raise RuntimeError(f"{what}: {reason} (CUDA error {status})")


def error_text(status: int) -> str:
    """What the driver calls an error; the CUDA runtime's codes are the same numbers."""
    text = ctypes.c_char_p()
    driver().cuGetErrorString(status, ctypes.byref(text))
    return (text.value or b"unknown error").decode()


class Block:
    """One allocation. ``bytes`` is a one-dimensional uint8 tensor over all of it."""

    bytes: torch.Tensor

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class OwnedDeviceBlock(Block):
    def __init__(self, nbytes: int) -> None:
        import torch

        super().__init__(nbytes)
        self._address = ctypes.c_uint64()
        check(driver().cuMemAlloc_v2(ctypes.byref(self._address), ctypes.c_size_t(nbytes)), f"{nbytes / 2**20:.0f} MiB asked for")
        self.bytes = torch.as_tensor(DeviceArray(self._address.value or 0, nbytes), device="cuda")

    def describe(self, outgoing: list[int]) -> dict[str, Any]:
        handle = _IpcHandle()
        check(driver().cuIpcGetMemHandle(ctypes.byref(handle), self._address), "sharing GPU memory between processes")
        return {"ipc": bytes(ctypes.string_at(ctypes.byref(handle), 64)).hex(), "nbytes": self.nbytes}

    def free(self) -> None:
        del self.bytes
        check(driver().cuMemFree_v2(self._address), "freeing GPU memory")


class OwnedHostBlock(Block):
    """A memfd of a fixed size: who has it can neither cut it, which would kill the owner at its next access, nor extend it."""

    def __init__(self, nbytes: int) -> None:
        import torch

        super().__init__(nbytes)
        self._fd = -1
        try:
            self._fd = os.memfd_create("kopt", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self._fd, nbytes)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            # Never closed by hand: torch.frombuffer keeps the map alive, and would not hinder closing it under a tensor.
            self.bytes = torch.frombuffer(mmap.mmap(self._fd, nbytes), dtype=torch.uint8)
        except (OSError, OverflowError) as error:
            if self._fd >= 0:
                os.close(self._fd)
            raise Unavailable(f"not enough memory: {nbytes / 2**20:.0f} MiB asked for ({error})") from None

    def describe(self, outgoing: list[int]) -> dict[str, Any]:
        outgoing.append(os.dup(self._fd))
        return {"fd": len(outgoing) - 1, "nbytes": self.nbytes}

    def free(self) -> None:
        del self.bytes  # the memory goes with the last tensor over it
        os.close(self._fd)


class MappedBlock(Block):
    """A block of another process, by its description and, for host memory, the descriptors that came with it."""

    def __init__(self, description: dict[str, Any], received: list[int]) -> None:
        import torch

        super().__init__(description["nbytes"])
        self._address: ctypes.c_uint64 | None = None
        if "ipc" in description:
            handle = _IpcHandle()
            ctypes.memmove(ctypes.byref(handle), bytes.fromhex(description["ipc"]), 64)
            self._address = ctypes.c_uint64()
            library = driver()
            library.cuIpcOpenMemHandle_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), _IpcHandle, ctypes.c_uint]
            status = library.cuIpcOpenMemHandle_v2(ctypes.byref(self._address), handle, _LAZY_PEER_ACCESS)
            check(status, "mapping GPU memory of another process (CUDA IPC)")
            self.bytes = torch.as_tensor(DeviceArray(self._address.value or 0, self.nbytes), device="cuda")
        else:
            self.bytes = torch.frombuffer(mmap.mmap(received[description["fd"]], self.nbytes), dtype=torch.uint8)

    def unmap(self) -> None:
        del self.bytes
        if self._address is not None:
            check(driver().cuIpcCloseMemHandle(self._address), "unmapping GPU memory")


def allocate(nbytes: int, device: str) -> OwnedDeviceBlock | OwnedHostBlock:
    """A block of at least ``nbytes``, rounded up to whole pages of 2 MiB."""
    whole = max(1, -(-nbytes // PAGE)) * PAGE
    return OwnedDeviceBlock(whole) if device == "cuda" else OwnedHostBlock(whole)


def view(block: Block, layout: dict[str, Any]) -> torch.Tensor:
    """The tensor at ``layout`` (offset in bytes, dtype, shape, strides in elements or None) in a block."""
    import torch

    dtype = getattr(torch, layout["dtype"])
    count = layout["nbytes"] // dtype.itemsize
    flat = block.bytes[layout["offset"] : layout["offset"] + layout["nbytes"]].view(dtype)[:count]
    if layout["strides"] is not None:
        return flat.as_strided(layout["shape"], layout["strides"])
    return flat.view(layout["shape"])
