"""What makes a version of a kernel: the content of its file and of what that draws in from its own folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from .build.cache import content_key
from .build.sources import read
from .errors import KernelError
from .spec.model import KernelSpec


def of_kernel(spec: KernelSpec) -> str:
    """A digest of where the kernel is and what it says, with its local headers or modules. KernelError when it is gone."""
    if spec.backend == "triton":
        parts = _modules(spec.path)
    else:
        source = read(spec.path)
        parts = {spec.path: source.content, **dict(source.headers)}
    return _digest(parts)


def of_answer(spec: KernelSpec) -> str:
    """The same of the kernel and its reference: all that an answer on the kernel rests on."""
    reference = _digest(_modules(spec.reference.path)) if spec.reference else ""
    return content_key([of_kernel(spec), reference])


def _digest(parts: dict[Path, bytes]) -> str:
    return content_key(part for path, content in parts.items() for part in (str(path), content))


def _modules(path: Path) -> dict[Path, bytes]:
    """A Python file and the modules and packages of its folder that it imports, directly or not."""
    found: dict[Path, bytes] = {}
    pending = [path]
    while pending:
        file = pending.pop()
        if file in found:
            continue
        try:
            found[file] = file.read_bytes()
        except OSError as error:
            raise KernelError(f"{file} can't be read: {error.strerror}") from error
        for name in _imports(found[file]):
            module, package = path.parent / f"{name}.py", path.parent / name
            pending += [module] if module.is_file() else sorted(package.rglob("*.py")) if package.is_dir() else []
    return found


def _imports(source: bytes) -> Iterator[str]:
    """The first names of what a source imports; none of one that is no Python, which its import will tell."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from [node.module.partition(".")[0]] if node.module else (alias.name for alias in node.names)
