"""The published schema of ``--kopt-json`` is that of the records."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_kernelopt.core.records import SCHEMA, Results

PUBLISHED = Path(__file__).parents[2] / "docs" / f"results-v{SCHEMA}.schema.json"


def test_the_published_schema_is_that_of_the_records() -> None:
    """After a change of the records: ``python tests/unit/test_schema.py`` writes it anew."""
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == Results.model_json_schema()


if __name__ == "__main__":
    PUBLISHED.write_text(json.dumps(Results.model_json_schema(), indent=1) + "\n", encoding="utf-8")
