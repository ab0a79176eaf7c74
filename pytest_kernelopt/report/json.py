"""``--kopt-json``: everything that a session learned, as one file of the schema ``records.Results``."""

from __future__ import annotations

import json
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..text import clean
from .gather import Gathered

if TYPE_CHECKING:
    from ..core.records import Environment, Results


def check_writable(path: Path) -> None:
    """Find out before the run, not after it, that results can't be written: ``pytest.UsageError`` in one sentence."""
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            return
    except OSError as error:
        raise pytest.UsageError(f"--kopt-json {path}: cannot be written: {error.strerror or error}") from None


def results(gathered: Gathered, environment: Environment, exit_status: int) -> Results:
    """The session as a record. Items come sorted by node id, so that a spread session's file reads as a serial one's."""
    from ..core.records import Evaluation, Results

    return Results(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        environment=environment,
        exit_status=exit_status,
        evaluations=tuple(Evaluation.model_validate_json(json.dumps(clean(one))) for one in gathered.evaluations()),
        items={clean(nodeid): clean(dict(gathered.items[nodeid])) for nodeid in sorted(gathered.items)},
    )
