"""What a kernel's own ``kopt`` may set, and what the command line sets over it."""

from __future__ import annotations

from pytest_kernelopt.core.evaluate import EvaluatorSettings
from pytest_kernelopt.core.spec.settings import KEYS


def test_a_kernels_own_settings_hold_where_the_command_line_says_nothing() -> None:
    own = {"trials": 7, "cache": "warm", "warmup": 1.0, "repeat": 5, "max_time": 9.0, "timeout": 2.0, "rtol": 0.5}
    assert EvaluatorSettings().resolved(own) == {**own, "atol": None}


def test_the_command_line_wins_over_a_kernels_own_settings() -> None:
    given = EvaluatorSettings(trials=1, cache="cold", warmup_ms=0.0, timeout=3.0, atol=0.0)
    found = given.resolved({"trials": 7, "cache": "warm", "warmup": 1.0, "timeout": 2.0, "atol": 1.0})
    assert [found[name] for name in ("trials", "cache", "warmup", "timeout", "atol")] == [1, "cold", 0.0, 3.0, 0.0]


def test_the_defaults_hold_where_neither_says_anything() -> None:
    found = EvaluatorSettings().resolved({})
    assert (found["trials"], found["cache"], found["timeout"], found["repeat"]) == (3, "cold", 60.0, None)


def test_every_setting_that_is_resolved_is_one_that_kopt_takes() -> None:
    assert set(EvaluatorSettings().resolved({})) <= set(KEYS)
