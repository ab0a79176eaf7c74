"""The functions called ``solve`` in a translation unit and its type aliases, found by tree-sitter.

The grammar tells a definition from a declaration or a call and gives the scopes around it; parameter lists are cut out as
text, since tree-sitter's recovery from what it does not know would rename or lose parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

ENTRY = "solve"
_CALL = re.compile(r"\bsolve\s*\(")
_ALIAS = re.compile(r"\b(?:typedef\b([^;{}()]+)|using\s+([A-Za-z_]\w*)\s*=([^;{}]+));")
_ALIAS_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?(?:,|$)")
_STRING_OR_BRACKET = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[()]")
_BODY = re.compile(r"[^;{}()]*\{")
_LINKAGE = re.compile(r'\bextern\s*"C"\s*(?:\{|[^;{}]*\Z)')
_HIDDEN = ("class_specifier", "struct_specifier", "union_specifier", "compound_statement")


@dataclass(frozen=True)
class Function:
    """One definition or declaration of ``solve``. ``head``, ``parameters`` and ``tail`` are the text before its name,
    between its parentheses and after them; ``scope`` is its namespace (``a::b``)."""

    defined: bool
    c_linkage: bool
    head: str
    parameters: str
    tail: str
    line: int
    parameters_at: int
    scope: str = ""
    hidden: bool = False
    template: bool = False
    broken: bool = False


@lru_cache(maxsize=1)
def _parser() -> Any:
    import tree_sitter_cuda
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_cuda.language()))


def find(code: str) -> tuple[list[Function], dict[str, str]]:
    """Every ``solve`` of a preprocessed file (Latin-1 text) in order, and its file- and namespace-level aliases."""
    calls = list(_CALL.finditer(code))
    if not calls:
        return [], {}
    root = _parser().parse(code.encode("latin-1")).root_node
    functions = [f for call in calls if (f := _function(root, code, call)) is not None]
    return functions, (_aliases(root, code) if functions else {})


def _ancestors(node: Any) -> Iterator[Any]:
    while (node := node.parent) is not None:
        yield node


def _function(root: Any, code: str, call: re.Match[str]) -> Function | None:
    name = root.descendant_for_byte_range(call.start(), call.start() + len(ENTRY))
    if name is None or name.end_byte - name.start_byte != len(ENTRY):
        return None
    declarator, outer = _declarator(name)
    if declarator is None or outer is None:
        return None
    opening = call.end() - 1
    closing = _matching(code, opening)
    body = outer.child_by_field_name("body")
    start, end = outer.start_byte, outer.end_byte if body is None else body.start_byte
    defined = outer.type == "function_definition" and body is not None
    scope, c_linkage, hidden, template = _surroundings(outer)
    if outer.type == "ERROR":  # a brace is missing somewhere: the text still shows what the compiler will complain about
        start = max(code.rfind(c, 0, call.start()) for c in ";{}") + 1
        brace = _BODY.match(code, closing + 1)
        defined, end = brace is not None, brace.end() - 1 if brace else outer.end_byte
        c_linkage = _LINKAGE.search(code, 0, call.start()) is not None
    head = code[start : call.start()]
    return Function(
        defined=defined,
        c_linkage=c_linkage or _LINKAGE.search(head) is not None,
        head=head,
        parameters=code[opening + 1 : closing],
        tail=code[closing + 1 : end],
        line=code.count("\n", 0, call.start()) + 1,
        parameters_at=opening + 1,
        scope=scope,
        hidden=hidden,
        template=template,
        broken=closing >= end,
    )


def _declarator(name: Any) -> tuple[Any, Any]:
    """The function_declarator that declares this identifier and the declaration or definition it belongs to."""
    node = name.parent
    if node is not None and node.type == "qualified_identifier" and any(c.is_missing for c in node.children):
        node = node.parent  # `extern "C" SOME_MACRO int solve(...)`: the grammar reads `int::solve`
    if node is None or node.type != "function_declarator":
        return None, None
    outer = node.parent
    while outer is not None and outer.type in ("pointer_declarator", "reference_declarator", "init_declarator"):
        outer = outer.parent
    if outer is None or outer.type not in ("function_definition", "declaration", "ERROR"):
        return None, None
    return node, outer


def _surroundings(node: Any) -> tuple[str, bool, bool, bool]:
    """Namespace, whether the linkage is C, whether no symbol is to be had (class, body, unnamed namespace), template."""
    scopes: list[str] = []
    linkage = ""
    hidden = template = False
    for outer in _ancestors(node):
        if outer.type == "linkage_specification" and not linkage:
            linkage = _text(outer.child_by_field_name("value"))
        elif outer.type == "namespace_definition":
            name = outer.child_by_field_name("name")
            scopes.insert(0, _text(name))
            hidden = hidden or name is None
        template = template or outer.type == "template_declaration"
        hidden = hidden or (outer.type in _HIDDEN and not linkage)
    return "::".join(scopes), linkage == '"C"', hidden, template


def _text(node: Any) -> str:
    return "" if node is None else node.text.decode("latin-1")


def _matching(code: str, opening: int) -> int:
    """The index of the parenthesis that closes the one at ``opening``, or the end of the text."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(code, opening):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return match.start()
    return len(code)


def _aliases(root: Any, code: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in _ALIAS.finditer(code):
        node = root.descendant_for_byte_range(match.start(), match.start() + 1)
        if node is None:
            continue
        scope, _, hidden, template = _surroundings(node)
        if hidden or template:
            continue
        if match[2]:
            name, text = match[2], match[3]
        else:
            named = _ALIAS_NAME.search(match[1])
            if named is None:
                continue
            name, text = named[1], match[1][: named.end()].rstrip(", ")
        found[f"{scope}::{name}" if scope else name] = text
    return found
