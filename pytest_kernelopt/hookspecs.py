"""The hooks that this plugin calls, for a user's ``conftest.py`` or another plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


@pytest.hookspec(firstresult=True)
def pytest_kopt_cases(path: Path) -> Sequence[Mapping[str, object]] | None:
    """The cases of the kernel file at ``path``, where they are computed rather than written in its reference.

    Return a list of dims, in a fixed order (xdist workers compare theirs), or None to leave the kernel its own cases.
    Called at collection, once a kernel file; the hooks of the ``conftest.py`` files above ``path`` are asked, the nearest
    first. The first case is timed, unless the reference names ``timed``.

    .. code-block:: python

        # conftest.py
        def pytest_kopt_cases(path):
            if path.name.startswith("softmax"):
                return [{"rows": 4096, "cols": 2**k} for k in range(8, 15)]
            return None
    """
