"""A parsed signature against the compiler's own: the DWARF of a built library.

The parser reads one file as text; the compiler saw its headers, flags and macros. Debug information (``nvcc -g``, which
touches host code only) says what ``solve`` really takes, and a difference is an error before anything is called.
DWARF 5, sections 3.3 (subprograms), 5.1 to 5.3 (types), 7.8 (base type encodings).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..dtypes import DTYPES
from ..errors import KernelError
from ..spec.c_types import STREAM_STRUCT, STREAMS, Element, element
from ..spec.model import KernelSpec, Parameter
from ..spec.place import place

_FLOAT, _BOOL, _SIGNED, _SIGNED_CHAR, _UNSIGNED, _UNSIGNED_CHAR, _COMPLEX = 0x04, 0x02, 0x05, 0x06, 0x07, 0x08, 0x03
_KINDS = {
    _FLOAT: "float",
    _COMPLEX: "complex",
    _BOOL: "bool",
    _SIGNED: "int",
    _SIGNED_CHAR: "int",
    _UNSIGNED: "uint",
    _UNSIGNED_CHAR: "uint",
}
_TRANSPARENT = ("DW_TAG_typedef", "DW_TAG_volatile_type", "DW_TAG_restrict_type", "DW_TAG_const_type")


@dataclass(frozen=True)
class Compiled:
    """One parameter as compiled. ``kind`` is ``float``/``int``/``uint``/``bool``/``struct``/``void``/other of the element;
    ``names`` are its type names (typedefs first), ``size`` its bytes, ``const`` that of what is pointed to."""

    pointer: bool
    kind: str
    size: int
    names: tuple[str, ...]
    const: bool
    spelling: str


def check_signature(so_path: Path, spec: KernelSpec) -> tuple[str, ...]:
    """Compares the library's ``solve`` with ``spec``.

    Returns notes: a sentence when the library has no debug information for the entry. Raises KernelError that lists every
    difference in number, kind, constness, element type or return type.
    """
    found = _read(so_path, spec.entry)
    if found is None:
        return (f"{so_path.name} has no debug information for {spec.entry}: its signature was not compared with the source",)
    returns, compiled = found
    differences = []
    if len(compiled) != len(spec.parameters):
        differences.append(f"{len(compiled)} parameters were compiled and {len(spec.parameters)} were read")
    for number, (parameter, real) in enumerate(zip(spec.parameters, compiled, strict=False), 1):
        reason = _difference(parameter, real)
        if reason is not None:
            differences.append(f"parameter {number} `{parameter.name}` was compiled as `{real.spelling}`, which is {reason}")
    if (returns is not None) != spec.returns_status:
        was = "nothing" if returns is None else f"`{returns}`"
        differences.append(f"it returns {was}, and was read as returning {'a status' if spec.returns_status else 'nothing'}")
    if differences:
        raise KernelError(
            f"{place(spec.path, spec.line)}: the compiler's signature of {spec.entry} is not the one read from the source: "
            + "; ".join(differences)
            + ": write the parameters out with plain types in this file"
        )
    return ()


def _difference(parameter: Parameter, real: Compiled) -> str | None:
    stream = (real.pointer and STREAM_STRUCT in real.names) or bool(STREAMS & set(real.names))
    if parameter.kind == "stream" or stream:
        return None if parameter.kind == "stream" and stream else "not what was read"
    if real.pointer != (parameter.kind == "tensor"):
        return "a pointer" if real.pointer else "no pointer"
    if real.pointer and real.const != parameter.const:
        return "const" if real.const else "not const"
    if parameter.dtype is None:
        return None if real.kind == "void" else "not void*"
    if real.kind == "void":
        return f"void and not {parameter.dtype}"
    wanted = Element(parameter.dtype, parameter.lanes)
    known = [e for name in real.names if (e := element(name)) is not None]
    if known:  # several when a name stands for another: cuComplex is a float2
        return None if wanted in known else f"{_shown(known[-1])} and not {_shown(wanted)}"
    dtype = DTYPES[parameter.dtype]
    same = real.size == dtype.itemsize * parameter.lanes and real.kind in ("struct", dtype.kind)
    return None if same else f"{real.kind} of {real.size} bytes and not {_shown(wanted)}"


def _shown(e: Element) -> str:
    return e.dtype if e.lanes == 1 else f"{e.dtype} x {e.lanes}"


def _read(so_path: Path, entry: str) -> tuple[str | None, list[Compiled]] | None:
    """The return type (None for void) and parameters of an external C function; None without debug information for it."""
    from elftools.common.exceptions import DWARFError, ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with so_path.open("rb") as file:
            elf = ELFFile(file)
            if not elf.has_dwarf_info():
                return None
            for unit in elf.get_dwarf_info().iter_CUs():
                for die in _subprograms(unit.get_top_DIE()):
                    chain = _origins(die)
                    if _is_entry(chain, entry):
                        return _signature(chain)
    except (DWARFError, ELFError, OSError) as error:
        raise KernelError(f"{so_path}: its debug information cannot be read ({error}): rebuild it") from None
    return None


def _subprograms(die: Any) -> Iterator[Any]:
    for child in die.iter_children():
        if child.tag == "DW_TAG_subprogram":
            yield child
        elif child.tag == "DW_TAG_namespace":
            yield from _subprograms(child)


def _origins(die: Any) -> list[Any]:
    """A subprogram and the entries it is an instance or completion of: at -O3 the outer one has an address and no name."""
    chain = [die]
    for attribute in ("DW_AT_abstract_origin", "DW_AT_specification") * 2:
        if attribute in chain[-1].attributes:
            chain.append(chain[-1].get_DIE_from_attribute(attribute))
    return chain


def _is_entry(chain: list[Any], entry: str) -> bool:
    present = {name for die in chain for name in die.attributes}
    if "DW_AT_external" not in present or present & {"DW_AT_linkage_name", "DW_AT_MIPS_linkage_name"}:
        return False
    if "DW_AT_declaration" in chain[0].attributes:
        return False
    names = [die.attributes["DW_AT_name"].value for die in chain if "DW_AT_name" in die.attributes]
    return bool(names) and bytes(names[0]).decode("utf-8", "replace") == entry


def _signature(chain: list[Any]) -> tuple[str | None, list[Compiled]]:
    returns = next((_type_of(die) for die in chain if "DW_AT_type" in die.attributes), None)
    for die in chain:
        parameters = [c for c in die.iter_children() if c.tag == "DW_TAG_formal_parameter"]
        if parameters:
            return None if returns is None else _spelling(returns), [_compiled(_typed(p)) for p in parameters]
    return None if returns is None else _spelling(returns), []


def _typed(parameter: Any) -> Any:
    while "DW_AT_type" not in parameter.attributes and "DW_AT_abstract_origin" in parameter.attributes:
        parameter = parameter.get_DIE_from_attribute("DW_AT_abstract_origin")
    return _type_of(parameter)


def _type_of(die: Any) -> Any:
    """The type that an entry refers to; None for void."""
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def _name(die: Any) -> str:
    value = die.attributes.get("DW_AT_name")
    return "" if value is None else bytes(value.value).decode("utf-8", "replace")


def _peeled(die: Any) -> tuple[Any, bool, list[str]]:
    """A type without typedefs and qualifiers, whether one of them was const, and the typedefs' names."""
    const = False
    names: list[str] = []
    while die is not None and die.tag in _TRANSPARENT:
        const = const or die.tag == "DW_TAG_const_type"
        names += [_name(die)] if _name(die) else []
        die = _type_of(die)
    return die, const, names


def _compiled(die: Any) -> Compiled:
    spelling = _spelling(die)
    base, _, names = _peeled(die)
    pointer = base is not None and base.tag == "DW_TAG_pointer_type"
    const = False
    if pointer:
        base, const, inner = _peeled(_type_of(base))
        names += inner
    if base is None:
        return Compiled(pointer, "void", 0, tuple(names), const, spelling)
    names.append(_name(base))
    size = base.attributes["DW_AT_byte_size"].value if "DW_AT_byte_size" in base.attributes else 0
    if base.tag == "DW_TAG_base_type":
        kind = _KINDS.get(base.attributes["DW_AT_encoding"].value, "number")
        return Compiled(pointer, kind, size, (), const, spelling)  # encoding and size say it all
    kind = {"DW_TAG_structure_type": "struct", "DW_TAG_class_type": "struct"}.get(base.tag, "other")
    return Compiled(pointer, kind, size, tuple(names), const, spelling)


def _spelling(die: Any) -> str:
    """The type as C writes it, for a message."""
    if die is None:
        return "void"
    if die.tag == "DW_TAG_pointer_type":
        return f"{_spelling(_type_of(die))}*"
    if die.tag == "DW_TAG_reference_type":
        return f"{_spelling(_type_of(die))}&"
    if die.tag in ("DW_TAG_volatile_type", "DW_TAG_restrict_type"):
        return _spelling(_type_of(die))
    if die.tag == "DW_TAG_const_type":
        inner = _spelling(_type_of(die))
        return f"{inner} const" if inner.endswith("*") else f"const {inner}"
    return _name(die) or "an unnamed type"
