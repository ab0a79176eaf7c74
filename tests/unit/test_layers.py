"""The core's data goes one way, and the core knows nothing of pytest: what each module imports, by its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "pytest_kernelopt" / "core"
# later ones may import earlier ones; those of one line know nothing of each other
ORDER: tuple[tuple[str, ...], ...] = (
    ("errors", "dtypes", "folders", "records", "nvml", "cuda_probe"),
    ("spec",),
    ("toolchain", "device"),
    ("environment",),
    ("reference",),
    ("build",),
    ("isolate",),
    ("verify", "timing", "version"),
    ("preflight",),
    ("stage",),
    ("timed",),
    ("evaluate",),
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}


def part_of(path: Path) -> str:
    return path.relative_to(CORE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """What a module imports, absolute: also inside functions, and not what only a type checker reads."""
    package = ("pytest_kernelopt", "core", *path.relative_to(CORE).parts[:-1])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        n for b in ast.walk(tree) if isinstance(b, ast.If) and "TYPE_CHECKING" in ast.dump(b.test) for n in ast.walk(b)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            yield from ((*module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_a_module_imports_nothing_from_its_right_and_no_pytest(path: Path) -> None:
    own = part_of(path)
    for name in imports(path):
        assert name[0] not in ("pytest", "_pytest", "pytest_benchmark"), f"{path.name} imports {'.'.join(name)}"
        if name[:2] != ("pytest_kernelopt", "core"):
            continue
        other = name[2] if len(name) > 2 else own
        if own == "__init__" or other == own or other not in RANK:
            continue
        assert RANK[other] < RANK[own], f"core/{own} imports core/{other}, which stands to its right or beside it"


def test_every_part_of_the_core_has_its_place() -> None:
    assert {part_of(path) for path in CORE.rglob("*.py")} - {"__init__"} == set(RANK)
