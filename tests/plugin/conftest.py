"""Fixtures of the tests that run pytest in a project with kernels."""

from __future__ import annotations

import pytest
from project import Project


@pytest.fixture
def project(pytester: pytest.Pytester, clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("KOPT_FAKE_LOG", str(pytester.path / "fake.log"))
    monkeypatch.setenv("KOPT_CACHE_DIR", str(pytester.path / ".cache"))
    return Project(pytester)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_FAKE_GPU", "0")
