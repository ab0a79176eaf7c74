"""C and CUDA type names of Linux (LP64) and the element types, by their torch names, that they hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Element:
    """``dtype`` is torch's name, ``lanes`` how many of them one C value holds (4 for ``float4``)."""

    dtype: str
    lanes: int = 1


BUILTIN_WORDS = frozenset(("void", "bool", "_Bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned"))
BUILTIN_WORDS |= {"auto", "wchar_t", "__int128", "char8_t", "char16_t", "char32_t"}
QUALIFIERS = frozenset(("const", "volatile", "restrict", "__restrict", "__restrict__", "__const", "__volatile__", "register"))
QUALIFIERS |= {"constexpr", "mutable", "typename", "inline", "__inline__", "__forceinline__", "__noinline__"}
QUALIFIERS |= {"__host__", "__device__", "__grid_constant__"}
STREAMS = frozenset(("cudaStream_t", "CUstream"))
STREAM_STRUCT = "CUstream_st"
STATUS_TYPES = frozenset(("int", "cudaError_t", "cudaError"))
_OPEN_NAMESPACES = ("std::", "cuda::std::", "cuda::", "cutlass::", "cute::")


def _table() -> dict[str, Element]:
    table = {
        "float": Element("float32"),
        "double": Element("float64"),
        "bool": Element("bool"),
        "_Bool": Element("bool"),
        "char": Element("int8"),
        "signed char": Element("int8"),
        "unsigned char": Element("uint8"),
        "short": Element("int16"),
        "unsigned short": Element("uint16"),
        "int": Element("int32"),
        "unsigned": Element("uint32"),
        "long": Element("int64"),
        "unsigned long": Element("uint64"),
        "long long": Element("int64"),
        "unsigned long long": Element("uint64"),
        "tfloat32_t": Element("float32"),
    }
    for bits in (8, 16, 32, 64):
        for sign, dtype in (("", f"int{bits}"), ("u", f"uint{bits}")):
            table[f"{sign}int{bits}_t"] = Element(dtype)
    for names, dtype in (
        ("size_t uintptr_t ulong", "uint64"),
        ("ssize_t ptrdiff_t intptr_t", "int64"),
        ("uint", "uint32"),
        ("ushort", "uint16"),
        ("half __half nv_half __nv_half half_t", "float16"),
        ("__nv_bfloat16 nv_bfloat16 bfloat16_t", "bfloat16"),
        ("__nv_fp8_e4m3 float_e4m3_t", "float8_e4m3fn"),
        ("__nv_fp8_e5m2 float_e5m2_t", "float8_e5m2"),
        ("cuComplex cuFloatComplex", "complex64"),
        ("cuDoubleComplex", "complex128"),
    ):
        table.update({name: Element(dtype) for name in names.split()})
    vectors = "char:int8 uchar:uint8 short:int16 ushort:uint16 int:int32 uint:uint32 long:int64 ulong:uint64 longlong:int64"
    vectors += " ulonglong:uint64 float:float32 double:float64"
    for stem, dtype in (pair.split(":") for pair in vectors.split()):
        table.update({f"{stem}{lanes}": Element(dtype, lanes) for lanes in (1, 2, 3, 4)})
    for names, dtype, lanes in (
        ("half2 __half2 nv_half2 __nv_half2", "float16", 2),
        ("__nv_bfloat162 nv_bfloat162", "bfloat16", 2),
        ("__nv_fp8x2_e4m3", "float8_e4m3fn", 2),
        ("__nv_fp8x4_e4m3", "float8_e4m3fn", 4),
        ("__nv_fp8x2_e5m2", "float8_e5m2", 2),
        ("__nv_fp8x4_e5m2", "float8_e5m2", 4),
    ):
        table.update({name: Element(dtype, lanes) for name in names.split()})
    return table


ELEMENTS = _table()


def element(name: str) -> Element | None:
    """What a type of this canonical name holds; None for ``void`` and for every type this project does not know."""
    return ELEMENTS.get(plain_name(name))


def plain_name(name: str) -> str:
    """A type's name without the namespaces in which the standard library, CUDA and CUTLASS keep the same types."""
    name = name.removeprefix("::")
    for namespace in _OPEN_NAMESPACES:
        if name.startswith(namespace) and "::" not in name[len(namespace) :]:
            return name[len(namespace) :]
    return name


def builtin_name(words: list[str]) -> str:
    """The canonical spelling of C's type words in any order: ``int long unsigned`` is ``unsigned long``."""
    if len(words) == 1 and words[0] not in ("signed", "unsigned"):
        return words[0]
    rest = sorted(words, key=lambda word: (word == "double", word))
    unsigned = "unsigned" in rest
    rest = [w for w in rest if w not in ("signed", "unsigned")]
    if "char" in rest:
        return " ".join([("unsigned" if unsigned else "signed"), *rest])
    if rest != ["int"]:
        rest = [w for w in rest if w != "int"] if set(rest) <= {"int", "long", "short"} else rest
    if rest in ([], ["int"]):
        return "unsigned" if unsigned else "int"
    return " ".join((["unsigned"] if unsigned else []) + rest)
