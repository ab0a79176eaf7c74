"""One C parameter, from its tokens: what it is, or in one phrase why it cannot be passed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from . import literals
from .c_types import BUILTIN_WORDS, QUALIFIERS, STATUS_TYPES, STREAM_STRUCT, STREAMS, builtin_name, element, plain_name
from .conditions import python_numbers
from .model import Parameter, Scalar

_TOKEN = re.compile(
    r"[A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*|\.?\d(?:[eEpP][+-]|[\w.])*"
    r"|::|&&|\.\.\.|->|\[\[|\]\]|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|\S"
)
_IDENTIFIER = re.compile(r"[A-Za-z_\x80-\xff]")
_ATTRIBUTES = frozenset(("__attribute__", "__attribute", "__declspec", "__align__", "alignas", "__launch_bounds__"))
_ELABORATED = frozenset(("struct", "class", "union", "enum"))
_BRACKETS = {"(": ")", "[": "]", "{": "}", "[[": "]]"}
_LIMIT = 8  # aliases of aliases


class Refused(Exception):
    """A declaration that is not understood or cannot be passed, with the reason."""


@dataclass(frozen=True)
class CType:
    """``name`` is canonical (``unsigned long``); ``const`` is that of the value pointed to, or of the value itself."""

    name: str
    const: bool = False
    depth: int = 0


@dataclass(frozen=True)
class Aliases:
    """Type names of the file: ``types`` maps a (qualified) alias to its text, ``scope`` is the namespace of the use."""

    types: Mapping[str, str]
    scope: str = ""

    def find(self, name: str) -> str | None:
        inner = f"{self.scope}::{name}"
        return self.types.get(inner) if self.scope and inner in self.types else self.types.get(name.removeprefix("::"))


def tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def split_parameters(text: str) -> list[tuple[int, str]]:
    """The parameters in a list's text (without its parentheses), each with its offset; none for ``void``."""
    pieces: list[tuple[int, str]] = []
    depth = angles = start = 0
    in_default = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _BRACKETS:
            depth += 1
        elif token in _BRACKETS.values():
            depth -= 1
        elif token in "<>" and not in_default:
            angles += 1 if token == "<" else -1
        elif token == "=" and not depth:
            in_default = True
        elif token == "," and depth <= 0 and angles <= 0:
            pieces.append((start, text[start : match.start()]))
            start, in_default, angles = match.end(), False, 0
    pieces.append((start, text[start:]))
    if len(pieces) == 1 and pieces[0][1].split() in ([], ["void"]):
        return []
    return pieces


def without_attributes(given: list[str]) -> list[str]:
    """The tokens without ``[[...]]``, ``__attribute__((...))`` and their like."""
    result: list[str] = []
    i = 0
    while i < len(given):
        if given[i] in _ATTRIBUTES and given[i + 1 : i + 2] == ["("]:
            i = _closing(given, i + 1) + 1
        elif given[i] == "[[":
            i = _closing(given, i) + 1
        else:
            result.append(given[i])
            i += 1
    return result


def _closing(given: list[str], i: int) -> int:
    """The index of the bracket that closes the one at ``i``, or of the last token."""
    opening, closing, depth = given[i], _BRACKETS[given[i]], 0
    for j in range(i, len(given)):
        depth += (given[j] == opening) - (given[j] == closing)
        if depth == 0:
            return j
    return len(given) - 1


def parse_parameter(text: str, line: int, aliases: Aliases, *, named: bool = True) -> Parameter:
    """One parameter of the entry point; ``named=False`` takes one of a declaration. Raises Refused with the reason."""
    before, equals, default = text.partition("=")
    declared, name = parse_type(before, aliases)
    if named and not name:
        raise Refused("it has no name, and arguments are bound by name")
    parameter = _classify(declared, name, line)
    shown = re.sub(rf"{re.escape(name)}(?=\s*(\[.*)?$)", "", " ".join(before.split())) if name else before
    parameter = replace(parameter, spelling=shown.strip().encode("latin-1").decode("utf-8", "replace"))
    parameter = replace(parameter, name=name.encode("latin-1").decode("utf-8", "replace"))
    return with_default(parameter, default) if equals else parameter


def with_default(parameter: Parameter, text: str) -> Parameter:
    """The parameter with the default that its text gives; unchanged where only a compiler could tell the value."""
    text = text.strip()
    if parameter.kind != "scalar":
        null = text in ("nullptr", "NULL", "0", "{}")
        return replace(parameter, has_default=True) if null else parameter
    try:
        value = literals.parse(_python_words(python_numbers(text)), c_integers=True)
        return replace(parameter, has_default=True, default=_converted(value, parameter.dtype or ""))
    except literals.NotLiteral:
        return parameter


def _python_words(text: str) -> str:
    return re.sub(r"\b(?:true|false)\b", lambda m: m[0].capitalize(), text)


def _converted(value: object, dtype: str) -> Scalar:
    """A default as C converts it to the parameter's type."""
    if not isinstance(value, (bool, int, float)):
        raise literals.NotLiteral("is no number")
    if dtype == "bool":
        return bool(value)
    if dtype.startswith(("float", "bfloat")):
        return float(value)
    return math.trunc(value)


def called_as(parameter: Parameter) -> tuple[object, ...]:
    """What two declarations of one function have in common, whatever they call their parameters."""
    return parameter.kind, parameter.dtype, parameter.const, parameter.lanes


def status_of(spelled: list[str], aliases: Aliases) -> bool | None:
    """Whether a return type is a status (``int``, ``cudaError_t``) or void; None for every other.

    Names before the type that mean nothing here are macros of some header (an export attribute).
    """
    for start in range(len(spelled)):
        try:
            declared, extra = parse_type(" ".join(spelled[start:]), aliases)
        except Refused:
            continue
        if extra or declared.depth:
            continue
        if declared.name == "void":
            return False
        held = element(declared.name)
        if declared.name in STATUS_TYPES or (held is not None and held.dtype == "int32" and held.lanes == 1):
            return True
        if held is not None:
            return None
    return None


def parse_type(text: str, aliases: Aliases) -> tuple[CType, str]:
    """The type and the name ("" when there is none) of a declaration without its default. Raises Refused."""
    given = without_attributes(tokens(text))
    for token, reason in (
        ("...", "C linkage needs a fixed number of arguments"),
        ("<", 'a template type cannot be passed through `extern "C"`'),
        ("(", "a function pointer or a pointer to an array is no tensor and no number"),
        ("&", 'a reference is not passed through `extern "C"`: take a value or a pointer'),
        ("&&", 'a reference is not passed through `extern "C"`: take a value or a pointer'),
    ):
        if token in given:
            raise Refused(reason)
    arrays = 0
    while given and given[-1] == "]":
        opening = len(given) - 1 - given[::-1].index("[") if "[" in given else 0
        given, arrays = given[:opening], arrays + 1
    if arrays > 1:
        raise Refused("an array of arrays: pass one pointer and the sizes")
    base, const, rest = _specifiers(given)
    stars = rest.count("*")
    rest = [t for t in rest if t != "*" and t not in QUALIFIERS]
    name = rest.pop() if rest and _IDENTIFIER.match(rest[-1]) else ""
    if rest or not base:
        raise Refused("it is not understood: write it as a plain pointer or number")
    return _resolved(base, const, stars + arrays, aliases), name


def _specifiers(given: list[str]) -> tuple[str, bool, list[str]]:
    """The base type's name, whether it is const, and what follows it: ``*``, qualifiers and the name."""
    words: list[str] = []
    name = ""
    const = False
    for i, token in enumerate(given):
        if token in QUALIFIERS:
            const = const or token in ("const", "__const")
        elif token in _ELABORATED and not name and not words:
            known = given[i + 1 : i + 2]
            if known and known[0] != STREAM_STRUCT and element(known[0]) is None:
                raise Refused("an enum: take an int" if token == "enum" else f"a {token}: pass its fields one by one")
        elif token in BUILTIN_WORDS and not name:
            words.append(token)
        elif token == "::" or ((name.endswith("::") or not (name or words)) and _IDENTIFIER.match(token)):
            name += token
        else:
            return name or (builtin_name(words) if words else ""), const, given[i:]
    return name or (builtin_name(words) if words else ""), const, []


def _resolved(base: str, const: bool, depth: int, aliases: Aliases) -> CType:
    seen = 0
    while (text := aliases.find(base)) is not None:
        seen += 1
        if seen > _LIMIT:
            raise Refused(f"the type `{base}` is defined by itself")
        try:
            inner, _ = parse_type(text, Aliases({}))
        except Refused as refused:
            raise Refused(f"the type `{base}` is not simple ({refused})") from None
        # const before an alias of a pointer makes the pointer const, not what it points to
        const = inner.const or (const and inner.depth == 0)
        depth += inner.depth
        if inner.name == base:
            break
        base = inner.name
    return CType(base, const, depth)


def _classify(declared: CType, name: str, line: int) -> Parameter:
    plain = plain_name(declared.name)
    if (plain in STREAMS and declared.depth == 0) or (plain == STREAM_STRUCT and declared.depth == 1):
        return Parameter(name, "stream", line=line)
    if declared.depth > 1:
        raise Refused("a pointer to pointers: pass one pointer for every tensor")
    held = element(declared.name)
    if declared.depth == 1 and plain == "void":
        return Parameter(name, "tensor", None, declared.const, line=line)
    if held is None:
        if plain in ("void", "auto"):
            raise Refused(f"`{plain}` is no type of a value")
        raise Refused(f"the type `{declared.name}` is not known here: write it out, or typedef it in this file")
    if declared.depth == 1:
        return Parameter(name, "tensor", held.dtype, declared.const, held.lanes, line=line)
    if held.lanes > 1 or held.dtype.startswith("complex"):
        raise Refused(f"a `{declared.name}` by value: pass its parts as numbers")
    return Parameter(name, "scalar", held.dtype, line=line)
