"""Guard bands and poison: what a kernel wrote outside its tensors, and what it never wrote inside them.

A block is a flat uint8 tensor of one allocation: guard, tensor, guard. Everything here moves bytes and integers only,
never floating values, as a signalling NaN loses its bits in arithmetic. torch is imported inside the functions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..dtypes import DTYPES
from ..reference.problem import Role
from .elements import SAME_SIZE, as_int64, chunks, parts, torch_type

if TYPE_CHECKING:
    import torch

GUARD = 64 * 1024
PAGE = 2 * 1024 * 1024
PIECE = 1 << 24

Pattern = Literal["A", "B"]

# A: NaN for floats, signalling where the type has room for it: any arithmetic, on a GPU or here, changes its bits, so
# that an element nobody wrote is told from a NaN that was computed. B: large negative finite numbers.
_WORDS: dict[str, tuple[int, int]] = {
    "float64": (0x7FF5A5A5A5A5A5A5, 0xDA5A5A5A5A5A5A5A),
    "float32": (0x7FA5A5A5, 0xDA5A5A5A),
    "float16": (0x7DA5, 0xFA5A),
    "bfloat16": (0x7FA5, 0xDA5A),
    "float8_e4m3fn": (0xFF, 0xFA),
    "float8_e5m2": (0xFD, 0xFA),
    "complex64": (0x7FA5A5A5, 0xDA5A5A5A),
    "complex128": (0x7FF5A5A5A5A5A5A5, 0xDA5A5A5A5A5A5A5A),
}
_SIZES = {"complex64": 4, "complex128": 8}


@dataclass(frozen=True)
class GuardReport:
    """Bytes changed in the guards of one block. ``reach``: how far away from the tensor the furthest of them lies."""

    before: int = 0
    reach_before: int = 0
    after: int = 0
    reach_after: int = 0

    def sentence(self, name: str) -> str:
        """``wrote 128 bytes past the end of 'y'``."""
        texts = []
        for count, reach, place, side in (
            (self.after, self.reach_after, "past the end of", "past it"),
            (self.before, self.reach_before, "before the start of", "before it"),
        ):
            if count:
                far = "" if count == reach else f" (as far as {reach} {_plural(reach, 'byte')} {side})"
                texts.append(f"{count} {_plural(count, 'byte')} {place} '{name}'{far}")
        return "wrote " + " and ".join(texts)


@dataclass(frozen=True)
class Probe:
    """What the probes of one tensor found after one run.

    ``unwritten``: elements that still hold the poison. ``changed``: bytes of an input that differ. ``accumulated``:
    elements in which what stood there before shows (``count_accumulated``).
    """

    name: str
    role: Role
    elements: int
    guard: GuardReport | None = None
    unwritten: int = 0
    changed: int = 0
    accumulated: int = 0


@dataclass(frozen=True)
class Finding:
    """A failure that is not one of values: ``kind`` as in ``records.Correctness.kind``, ``message`` one sentence."""

    kind: str
    message: str


def layout(nbytes: int) -> tuple[int, int]:
    """(offset of the tensor, size of the block) in bytes for a tensor of ``nbytes``.

    At least 64 KiB of guard on each side. The block is whole 2 MiB pages, as a CUDA IPC handle opens whole pages:
    nothing else may live in them. What is left over belongs to the guard after the tensor.
    """
    return GUARD, -(-(nbytes + 2 * GUARD) // PAGE) * PAGE


def word(dtype: str, pattern: Pattern) -> bytes:
    """The 8 bytes that poison of this type repeats: NaN (A) or large negative numbers (B); integers and bools 0xA5, 0x5A.

    Neither byte is a bool, so that poison in a bool tensor is never a right value. The guards of inputs get pattern A
    of their type, so that a read out of bounds shows in the result.
    """
    if dtype in _WORDS:
        size = _SIZES.get(dtype, DTYPES[dtype].itemsize)
        return _WORDS[dtype][pattern == "B"].to_bytes(size, "little") * (8 // size)
    return (b"\x5a" if pattern == "B" else b"\xa5") * 8


def write_guards(block: torch.Tensor, offset: int, nbytes: int, pattern: bytes) -> None:
    """Fill what is around the tensor at ``offset`` with the 8-byte ``pattern``, in phase with the block's start."""
    _fill(block, 0, offset, pattern)
    _fill(block, offset + nbytes, block.numel(), pattern)


def check_guards(block: torch.Tensor, offset: int, nbytes: int, pattern: bytes) -> GuardReport | None:
    """What has changed around the tensor since ``write_guards``; None when nothing has.

    A byte that was overwritten by the value it had is not seen.
    """
    before = _changed(block, 0, offset, pattern)
    after = _changed(block, offset + nbytes, block.numel(), pattern)
    if not before.numel() and not after.numel():
        return None
    return GuardReport(
        before=before.numel(),
        reach_before=offset - int(before[0]) if before.numel() else 0,
        after=after.numel(),
        reach_after=int(after[-1]) + 1 - offset - nbytes if after.numel() else 0,
    )


def poison(view: torch.Tensor, dtype: str, pattern: Pattern) -> None:
    """Fill a tensor's bytes (flat uint8, starting at a multiple of 8) with the poison of its type."""
    _fill(view, 0, view.numel(), word(dtype, pattern))


def count_poison(view: torch.Tensor, dtype: str, pattern: Pattern, want: torch.Tensor | None = None) -> int:
    """How many elements still hold the poison. ``view`` is the tensor itself (any strides) or its flat uint8 bytes.

    Small types can hold the poison as a right value: with ``want``, the reference's result of the same shape, elements
    whose right value it is do not count (types of one byte, integers and bools).
    """
    bits = _bits(view, dtype)
    poisoned = _poison_value(dtype, pattern)
    judged = DTYPES[dtype].kind in ("int", "uint", "bool") or DTYPES[dtype].itemsize == 1
    wide = DTYPES[dtype].kind == "complex"
    total = 0
    for _, index in chunks(tuple(bits.shape[:-1] if wide else bits.shape), PIECE):
        same = bits[index] == poisoned
        if wide:
            same = same.all(dim=-1)
        if judged and want is not None:
            same &= ~_right_anyway(want[index], dtype, poisoned)
        total += int(same.sum())
    return total


def count_changed(before: torch.Tensor, after: torch.Tensor) -> int:
    """How many bytes of two flat uint8 tensors of one size differ."""
    total = 0
    for start in range(0, before.numel(), PIECE):
        total += int((before[start : start + PIECE] != after[start : start + PIECE]).sum())
    return total


def count_accumulated(first: torch.Tensor, second: torch.Tensor, dtype: str) -> int:
    """Elements in which what stood there before the call shows, from two runs on the same inputs with poison A and B.

    Floats: NaN after A, a number after B, and written. Integers: the two results differ by just what A and B differ.
    Tensors of type ``dtype``, of one shape. A kernel that is random gives no evidence either way.
    """
    if DTYPES[dtype].kind == "bool":
        return 0
    closer = _nan_turned_number if DTYPES[dtype].kind in ("float", "complex") else _apart_as_poison
    return sum(int(closer(first[i], second[i], dtype).sum()) for _, i in chunks(tuple(first.shape), PIECE))


def classify(first: Sequence[Probe], second: Sequence[Probe] = ()) -> tuple[Finding, ...]:
    """The failures that the probes of one run, or of two with poison A and B, prove; the gravest first.

    With two runs an element counts as never written only when it kept both poisons. Inputs and ``inout`` tensors are
    not poisoned; only inputs must stay as they are.
    """
    again = {probe.name: probe for probe in second}
    pairs = [(probe, again.get(probe.name, probe)) for probe in first]
    findings: list[Finding] = []
    for a, b in pairs:
        guard = a.guard or b.guard
        if guard is not None:
            findings.append(Finding("out of bounds write", guard.sentence(a.name)))
    findings += [
        Finding("changed its input", f"changed its input '{a.name}' ({count} {_plural(count, 'byte')} differ)")
        for a, b in pairs
        if a.role == "input" and (count := max(a.changed, b.changed))
    ]
    for a, b in pairs:
        count = min(a.unwritten, b.unwritten)
        if a.role != "output" or not count:
            continue
        if count == a.elements:
            text = f"output '{a.name}' was never written ({count} of {a.elements} {_plural(a.elements, 'element')})"
            findings.append(Finding("never written", text))
        else:
            text = f"{count} of {a.elements} elements of output '{a.name}' were never written"
            findings.append(Finding("partly written", text))
    for a, b in pairs:
        count = max(a.accumulated, b.accumulated)
        if a.role == "output" and count:
            text = f"accumulates into its output '{a.name}': what stood there before the call shows in {count} of {a.elements}"
            findings.append(Finding("accumulates into its output", f"{text} {_plural(a.elements, 'element')}"))
    return tuple(findings)


def _fill(block: torch.Tensor, start: int, stop: int, pattern: bytes) -> None:
    """Repeat 8 bytes over ``block[start:stop]``, each byte in its place modulo 8; the bulk as int64."""
    import torch

    head, tail = min(-(-start // 8) * 8, stop), stop // 8 * 8
    if head < tail and (block.data_ptr() + head) % 8 == 0:
        block[head:tail].view(torch.int64).fill_(struct.unpack("<q", pattern)[0])
    else:
        tail = head
    for a, b in ((start, head), (tail, stop)):
        if a < b:
            block[a:b].copy_(_repeated(pattern, a, b, block))


def _changed(block: torch.Tensor, start: int, stop: int, pattern: bytes) -> torch.Tensor:
    """The places (from the block's start) in ``[start, stop)`` that do not hold the pattern."""
    return (block[start:stop] != _repeated(pattern, start, stop, block)).nonzero().flatten() + start


def _repeated(pattern: bytes, start: int, stop: int, like: torch.Tensor) -> torch.Tensor:
    import torch

    unit = torch.tensor(list(pattern), dtype=torch.uint8, device=like.device)
    return unit.repeat((stop - start) // 8 + 2)[start % 8 :][: stop - start]


def _nan_turned_number(a: torch.Tensor, b: torch.Tensor, dtype: str) -> torch.Tensor:
    untouched = _bits(a, dtype) == _poison_value(dtype, "A")
    if a.is_complex():
        untouched = untouched.all(dim=-1)
    return parts(a).isnan().reshape(*a.shape, -1).any(-1) & ~parts(b).isnan().reshape(*b.shape, -1).any(-1) & ~untouched


def _apart_as_poison(a: torch.Tensor, b: torch.Tensor, dtype: str) -> torch.Tensor:
    import torch

    bits_a, bits_b = _bits(a, dtype), _bits(b, dtype)
    was_a, was_b = _poison_value(dtype, "A"), _poison_value(dtype, "B")
    apart = torch.full((), was_a, dtype=bits_a.dtype, device=a.device) - was_b
    return (bits_a - bits_b == apart) & ~((bits_a == was_a) & (bits_b == was_b))


def _bits(view: torch.Tensor, dtype: str) -> torch.Tensor:
    """Integers of the elements' size; of complex types two in a last dimension, those of the parts."""
    import torch

    values = view if view.dtype == torch_type(dtype) else view.view(torch_type(dtype))
    if values.is_complex():
        values = torch.view_as_real(values)
    return values.view(getattr(torch, SAME_SIZE[values.element_size()]))


def _poison_value(dtype: str, pattern: Pattern) -> int:
    """The poison as the integer that ``_bits`` shows."""
    size = _SIZES.get(dtype, DTYPES[dtype].itemsize)
    return int.from_bytes(word(dtype, pattern)[:size], "little", signed=size > 1)


def _right_anyway(want: torch.Tensor, dtype: str, poisoned: int) -> torch.Tensor:
    import torch

    if DTYPES[dtype].kind == "float":
        return want.to(torch.float32).to(torch_type(dtype)).view(torch.uint8) == poisoned
    # By their low bits, as signed integers of the output's size.
    size = SAME_SIZE[DTYPES[dtype].itemsize]
    return as_int64(want).to(getattr(torch, size)) == poisoned


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else noun + "s"
