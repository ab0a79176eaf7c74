"""Three small kernels of our own, as PTX that any driver can load: a marker, a spin and an L2 flush.

Their names tell them apart in the profiler's records, and are others in every process: a kernel file can't hold its own by
those names. Runs in children.
"""

from __future__ import annotations

import ctypes
import functools
import secrets
from typing import Any

from ..isolate import memory

_TAG = secrets.token_hex(4)
BEGIN = f"kopt_begin_{_TAG}"  # the end of everything that belongs to the call before
SPIN = f"kopt_spin_{_TAG}"  # keeps the device busy while the host enqueues the call
FLUSH = f"kopt_flush_{_TAG}"  # reads a buffer larger than L2, which evicts everything else and leaves no dirty line behind
_FLUSH_THREADS = 256

_PTX = r"""
.version 6.5
.target sm_70
.address_size 64

.visible .entry BEGIN() { ret; }

.visible .entry SPIN(.param .u64 duration_ns)
{
    .reg .u64 %start, %now, %passed, %want;
    .reg .pred %again;
    ld.param.u64 %want, [duration_ns];
    mov.u64 %start, %globaltimer;
SPINNING:
    mov.u64 %now, %globaltimer;
    sub.u64 %passed, %now, %start;
    setp.lt.u64 %again, %passed, %want;
    @%again bra SPINNING;
    ret;
}

.visible .entry FLUSH(.param .u64 buffer, .param .u64 vectors)
{
    .reg .u64 %base, %count, %index, %step, %offset, %address, %wide;
    .reg .u32 %block, %threads, %thread, %blocks, %a, %b, %c, %d, %sum;
    .reg .pred %in, %odd;
    ld.param.u64 %base, [buffer];
    ld.param.u64 %count, [vectors];
    cvta.to.global.u64 %base, %base;
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.wide.u32 %index, %block, %threads;
    cvt.u64.u32 %wide, %thread;
    add.u64 %index, %index, %wide;
    mul.wide.u32 %step, %threads, %blocks;
    mov.u32 %sum, 0;
SWEEP:
    setp.lt.u64 %in, %index, %count;
    @!%in bra SWEPT;
    shl.b64 %offset, %index, 4;
    add.u64 %address, %base, %offset;
    ld.global.cg.v4.u32 {%a, %b, %c, %d}, [%address];
    xor.b32 %a, %a, %b;
    xor.b32 %c, %c, %d;
    xor.b32 %a, %a, %c;
    xor.b32 %sum, %sum, %a;
    add.u64 %index, %index, %step;
    bra SWEEP;
SWEPT:
    setp.eq.u32 %odd, %sum, 0x5bd1e995;
    @!%odd bra DONE;
    st.global.u32 [%base], %sum;
DONE:
    ret;
}
"""


@functools.cache
def _function(name: str) -> Any:
    library = memory.driver()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    text = _PTX.replace("BEGIN", BEGIN).replace("SPIN(", f"{SPIN}(").replace("FLUSH(", f"{FLUSH}(")
    memory.check(library.cuModuleLoadData(ctypes.byref(module), text.encode() + b"\0"), "loading the timing kernels")
    memory.check(library.cuModuleGetFunction(ctypes.byref(function), module, name.encode()), f"finding {name}")
    return function


def _launch(name: str, blocks: int, threads: int, *values: Any) -> None:
    """Launch on the legacy default stream, which is torch's current stream in a child."""
    pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
    status = memory.driver().cuLaunchKernel(_function(name), blocks, 1, 1, threads, 1, 1, 0, None, pointers, None)
    memory.check(status, f"launching {name}")


def begin() -> None:
    _launch(BEGIN, 1, 1)


def spin(nanoseconds: int) -> None:
    _launch(SPIN, 1, 1, ctypes.c_uint64(nanoseconds))


class Flush:
    """Evicts L2 by reading ``factor`` times its size."""

    def __init__(self, factor: float = 2.0) -> None:
        import torch

        properties = torch.cuda.get_device_properties(0)
        self.nbytes = max(int(properties.L2_cache_size * factor), 32 << 20) // 16 * 16
        self._buffer = torch.full((self.nbytes // 4,), 0x3C3C3C3C, dtype=torch.int32, device="cuda")
        self._blocks = properties.multi_processor_count * 8

    def __call__(self) -> None:
        arguments = ctypes.c_uint64(self._buffer.data_ptr()), ctypes.c_uint64(self.nbytes // 16)
        _launch(FLUSH, self._blocks, _FLUSH_THREADS, *arguments)
