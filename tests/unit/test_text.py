"""Names and messages that are no valid Unicode can be held by every report."""

from __future__ import annotations

import json

from pytest_kernelopt.text import clean


def test_lone_surrogates_become_escapes_at_any_depth() -> None:
    found = clean({"caf\udce9": ["ok", ("\ud800", 1, None)]})
    assert found == {r"caf\udce9": ["ok", (r"\ud800", 1, None)]}
    json.dumps(found).encode("utf-8")


def test_what_is_valid_stays_as_it_is() -> None:
    assert clean(["kernü", 1.5, True, None]) == ["kernü", 1.5, True, None]
