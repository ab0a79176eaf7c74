"""What of a C++ file the compiler's host pass sees: comments and dead branches blanked, object-like macros expanded.

The text is handled as Latin-1, one character a byte, so any encoding passes through unchanged and every line keeps its
number. A condition that this file alone cannot decide (``#ifdef`` of a name it never defines) is *unresolved*: the caller
chooses a branch, compares the outcomes and refuses what depends on the choice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .conditions import ABSENT, PREDEFINED, truth

_SPLICE = "\x0b"  # a newline that ends no logical line: after a backslash, or inside a block comment
_LEXER = re.compile(
    r"""//[^\n]*
      | /\*.*?(?:\*/|\Z)
      | (?<![A-Za-z0-9_])(?:u8|u|U|L)?R"([^\s()\\]{0,16})\(.*?\)\1"
      | "(?:\\.|[^"\\\n])*"?
      | (?<![A-Za-z0-9_])\d[A-Za-z0-9_.]*(?:'[A-Za-z0-9_.]+)+
      | '(?:\\.|[^'\\\n])*'?""",
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[ \t\x0b\x0c]*\#[ \t\x0b]*([a-z_]*)([^\n]*)", re.MULTILINE)
_MACRO = re.compile(r"\s*([A-Za-z_]\w*)(\([^)]*\))?(.*)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD_OR_STRING = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[A-Za-z0-9_]+")
_OPENING = ("if", "ifdef", "ifndef")
_MAX_EXPANSION = 1024


@dataclass(frozen=True)
class Macro:
    """One ``#define``; a function-like one is known to exist and never expanded."""

    body: str
    function_like: bool = False
    line: int = 0


@dataclass
class _Chunk:
    text: str


@dataclass
class _Command:
    name: str
    rest: str
    line: int
    newlines: int


@dataclass
class _Branch:
    opener: _Command
    items: list[_Item] = field(default_factory=list)


@dataclass
class _Group:
    branches: list[_Branch]
    end: _Command | None = None


_Item = _Chunk | _Command | _Group


@dataclass
class Source:
    """A lexed file: ``comments`` are (first line, text) pairs with their markers."""

    items: list[_Item]
    comments: list[tuple[int, str]]


@dataclass
class View:
    """The file under one choice of its unresolved conditions. ``code`` has the file's lines; ``includes`` are the names in
    its live ``#include`` lines; ``dead`` holds line ranges (inclusive) that no choice makes live."""

    code: str = ""
    macros: dict[str, Macro] = field(default_factory=dict)
    includes: list[str] = field(default_factory=list)
    unresolved: list[tuple[int, str]] = field(default_factory=list)
    widest: int = 1
    dead: list[tuple[int, int]] = field(default_factory=list)


def lex(data: bytes) -> Source:
    """Takes comments out of a file and splits it at its preprocessor lines."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    text = text.replace(_SPLICE, " ").replace("\r\n", "\n")
    if "\\" in text:
        text = re.sub(r"\\[ \t]*\n", lambda m: " " * (len(m[0]) - 1) + _SPLICE, text)
    comments: list[tuple[int, str]] = []
    at, line = 0, 1

    def blank(match: re.Match[str]) -> str:
        nonlocal at, line
        token = match[0]
        if token[0] in "\"'":
            return token
        if token[0].isdigit():
            return token.replace("'", "").ljust(len(token))
        if token[0] == "/":
            line += text.count("\n", at, match.start()) + text.count(_SPLICE, at, match.start())
            at = match.start()
            comments.append((line, token.replace(_SPLICE, "\n")))
            return re.sub(r"[^\n\x0b]", " ", token).replace("\n", _SPLICE)
        return '""' + re.sub(r"[^\n\x0b]", " ", token[2:]).replace("\n", _SPLICE)

    stripped = _LEXER.sub(blank, text)
    return Source(_tree(stripped), comments)


def _tree(text: str) -> list[_Item]:
    root: list[_Item] = []
    stack: list[_Group] = []
    here, at, line = root, 0, 1
    for match in _DIRECTIVE.finditer(text):
        chunk = text[at : match.start()]
        if chunk:
            here.append(_Chunk(chunk))
            line += chunk.count("\n") + chunk.count(_SPLICE)
        at = match.end()
        command = _Command(match[1], match[2].replace(_SPLICE, " ").strip(), line, match[0].count(_SPLICE))
        line += command.newlines
        if command.name in _OPENING:
            group = _Group([_Branch(command)])
            here.append(group)
            stack.append(group)
            here = group.branches[0].items
        elif command.name.startswith("el") and stack:
            stack[-1].branches.append(_Branch(command))
            here = stack[-1].branches[-1].items
        elif command.name == "endif" and stack:
            stack.pop().end = command
            here = stack[-1].branches[-1].items if stack else root
        else:
            here.append(command)
    here.append(_Chunk(text[at:]))
    return root


class _Reader:
    def __init__(self, choice: int, given: dict[str, str]) -> None:
        self.view = View(macros={**PREDEFINED_MACROS, **{name: Macro(body) for name, body in given.items()}})
        self.absent = set(ABSENT) - set(given)
        self._choice = choice
        self._out: list[str] = []
        self._expanded: dict[str, str] = {}

    def read(self, items: list[_Item]) -> View:
        self._items(items)
        self.view.code = "".join(self._out).replace(_SPLICE, "\n")
        return self.view

    def _items(self, items: list[_Item]) -> None:
        for item in items:
            if isinstance(item, _Chunk):
                self._out.append(self.expand(item.text))
            elif isinstance(item, _Command):
                self._out.append("\n" * item.newlines)
                self._command(item)
            else:
                self._group(item)

    def _group(self, group: _Group) -> None:
        possible: list[_Branch] = []
        settled = False
        for branch in group.branches:
            answer = False if settled else truth(branch.opener.name, branch.opener.rest, self)
            if answer is None and _gives_a_default(branch):
                answer = True
            if answer is not False:
                possible.append(branch)
            settled = settled or answer is True
        if not settled:
            possible.append(_Branch(group.end or group.branches[-1].opener))  # as if there were an empty #else
        if len(possible) > 1:
            first = possible[0].opener
            self.view.unresolved.append((first.line, f"#{first.name} {first.rest}".strip()))
            self.view.widest = max(self.view.widest, len(possible))
        chosen = possible[min(self._choice, len(possible) - 1)]
        for branch in group.branches:
            self._out.append("\n" * branch.opener.newlines)
            if branch is chosen:
                self._items(branch.items)
                continue
            count = _newlines(branch.items)
            self._out.append("\n" * count)
            if branch not in possible:
                self.view.dead.append((branch.opener.line, branch.opener.line + count))
        self._out.append("\n" * (group.end.newlines if group.end else 0))

    def _command(self, command: _Command) -> None:
        if command.name == "include":
            self.view.includes.append(command.rest.strip('<>" \t'))
        match = _MACRO.match(command.rest) if command.name in ("define", "undef") else None
        if match is None:
            return
        name = match[1]
        if command.name == "define":
            self.view.macros[name] = Macro(match[3].strip(), match[2] is not None, command.line)
            self.absent.discard(name)
        else:
            self.view.macros.pop(name, None)
            self.absent.add(name)
        self._expanded.clear()

    def expand(self, text: str) -> str:
        """``text`` with the object-like macros known so far replaced, outside of strings."""
        if self.view.macros.keys().isdisjoint(_WORD.findall(text)):
            return text
        return _WORD_OR_STRING.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        name = match[0]
        macro = self.view.macros.get(name)
        if macro is None or macro.function_like:
            return name
        if name not in self._expanded:
            self._expanded[name] = name  # a macro is not expanded inside itself
            body = self.expand(macro.body)
            self._expanded[name] = body if len(body) <= _MAX_EXPANSION else name
        return self._expanded[name]


PREDEFINED_MACROS = {name: Macro(body) for name, body in PREDEFINED.items()}


def _gives_a_default(branch: _Branch) -> bool:
    """``#ifndef X`` with ``#define X`` in it: a default or an include guard, taken unless a ``-D`` of this file says X."""
    name = branch.opener.rest.split()
    if branch.opener.name != "ifndef" or not name:
        return False
    defines = (i.rest for i in branch.items if isinstance(i, _Command) and i.name == "define")
    return any((match := _MACRO.match(rest)) is not None and match[1] == name[0] for rest in defines)


def _newlines(items: list[_Item]) -> int:
    count = 0
    for item in items:
        if isinstance(item, _Chunk):
            count += item.text.count("\n") + item.text.count(_SPLICE)
        elif isinstance(item, _Command):
            count += item.newlines
        else:
            count += sum(b.opener.newlines + _newlines(b.items) for b in item.branches)
            count += item.end.newlines if item.end else 0
    return count


def view(source: Source, choice: int = 0, given: dict[str, str] | None = None) -> View:
    """The file with the ``choice``-th possible branch of every unresolved condition; ``given`` are ``-D`` macros."""
    return _Reader(choice, given or {}).read(source.items)
