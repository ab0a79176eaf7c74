"""A source as the compiler gets it: its bytes, the local headers it draws in, and the parts of it that are live."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import KernelError

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include(?:_next)?[ \t]*([<"])([^>"\r\n]+)[>"]', re.MULTILINE)
_BOM = b"\xef\xbb\xbf"
_TOKENS = re.compile(
    r'R"(?P<d>[^()\\\s]{0,16})\((?:.|\n)*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n]){1,4}\'|(?P<comment>//(?:\\\n|[^\n])*|/\*(?:.|\n)*?\*/)'
)
_CONDITIONAL = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b[ \t]*(.*)$")


@dataclass(frozen=True)
class Source:
    """``content`` is the file's bytes without a BOM; ``headers`` the local ones by the path they were found at."""

    path: Path
    content: bytes
    headers: tuple[tuple[Path, bytes], ...]

    @property
    def text(self) -> str:
        """The source and its headers, for looking only: the bytes are what is compiled."""
        return "\n".join(data.decode("utf-8", "replace") for data in (self.content, *(data for _, data in self.headers)))

    def includes(self, prefixes: Sequence[str]) -> bool:
        found = (match.group(2) for data in (self.content, *(d for _, d in self.headers)) for match in _INCLUDE.finditer(data))
        return any(name.startswith(tuple(p.encode() for p in prefixes)) for name in found)


def read(path: Path, folders: Sequence[Path] = ()) -> Source:
    """Read a source with every header that it includes, directly or not, from its own folder or ``folders`` (``-I``).

    Conditions are not evaluated: a header in dead code counts too, which can cost a rebuild and never a stale build.
    KernelError when one of them can't be read.
    """
    content = _bytes(path)
    headers: dict[Path, bytes] = {}
    pending = [(path.parent, content)]
    while pending:
        folder, data = pending.pop()
        for bracket, name in _INCLUDE.findall(data):
            places = [*([folder, path.parent] if bracket == b'"' else []), *folders]
            relative = name.decode("utf-8", "surrogateescape").strip()
            found = next((p for p in (place / relative for place in places) if p.is_file()), None)
            if found is not None and found not in headers:
                headers[found] = _bytes(found)
                pending.append((found.parent, headers[found]))
    return Source(path, content.removeprefix(_BOM), tuple(sorted(headers.items())))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KernelError(f"{path} can't be read: {error.strerror}") from error


def live_code(text: str) -> str:
    """The text without comments and without ``#if 0`` branches; string literals stay. Lines keep their numbers."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group(0)) if match.group("comment") is not None else match.group(0)

    lines, stack = [], list[bool]()  # for each open conditional: whether its present branch can be live
    for line in _TOKENS.sub(blank, text.replace("\r\n", "\n")).split("\n"):
        directive = _CONDITIONAL.match(line)
        if directive:
            keyword, condition = directive.groups()
            if keyword in ("if", "ifdef", "ifndef"):
                stack.append(not (keyword == "if" and condition.strip() in ("0", "false", "(0)")))
            elif keyword == "endif" and stack:
                stack.pop()
            elif stack:
                stack[-1] = True
        lines.append(line if all(stack) and not directive else "")
    return "\n".join(lines)


def ascii_name(path: Path) -> str:
    """A name for the compiler's copy: compilers and their scripts stumble over spaces, quotes and other alphabets."""
    return "k_" + name if (name := re.sub(r"[^A-Za-z0-9._+-]", "_", path.name)).startswith(("-", ".")) else name
