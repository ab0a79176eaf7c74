"""The report as text for the terminal, and as ``preflight_check.md`` and ``.json``."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from ..folders import write_whole

if TYPE_CHECKING:
    from ..records import Check, Preflight

_WIDTH = 110


def render(preflight: Preflight) -> str:
    """A table with one check a line, its remedy below it, and the verdict at the end."""
    widest = max((len(check.name) for check in preflight.checks), default=0)
    indent = " " * (widest + 11)
    lines = []
    for check in preflight.checks:
        lines += _wrapped(f"{check.name:<{widest}}  {check.status:<7}  ", check.detail, indent)
        if check.remedy and check.status != "ok":
            lines += _wrapped(f"{indent}-> ", check.remedy, f"{indent}   ")
    return "\n".join([*lines, "", verdict(preflight)])


def verdict(preflight: Preflight) -> str:
    """One line: ready, or what is missing."""
    missing = [check.name for check in preflight.checks if _blocks(check)]
    return "ready" if preflight.ready else f"not ready: {', '.join(missing)} missing"


def write(preflight: Preflight, folder: Path) -> tuple[Path, Path]:
    """``preflight_check.md`` and ``preflight_check.json`` in ``folder``, which is made when need be; OSError when it can't."""
    page, data = folder / "preflight_check.md", folder / "preflight_check.json"
    write_whole(page, _markdown(preflight))
    write_whole(data, preflight.model_dump_json(indent=2) + "\n")
    return page, data


def _markdown(preflight: Preflight) -> str:
    environment = preflight.environment
    rows = [
        f"| {_cell(c.name)} | {c.status} | {'yes' if c.required else 'no'} | {_cell(c.detail)} | {_remedy(c)} |"
        for c in preflight.checks
    ]
    lines = [
        "# Preflight check",
        "",
        f"**{verdict(preflight)}**",
        "",
        f"{preflight.created}, Python {environment.python}, pytest {environment.pytest}, "
        f"pytest-kernelopt {environment.plugin}, {environment.platform}",
        "",
        "| check | status | required | found | what mends it |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]
    return "\n".join(lines)


def _blocks(check: Check) -> bool:
    return check.required and check.status == "missing"


def _remedy(check: Check) -> str:
    return _cell(check.remedy) if check.remedy and check.status != "ok" else ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _wrapped(start: str, text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
