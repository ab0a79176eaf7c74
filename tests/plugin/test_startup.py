"""Who has the plugin and no kernels pays nothing; and collection needs no heavy library either."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from project import Project

HEAVY = ("torch", "triton", "pydantic", "sqlalchemy", "rich", "tree_sitter", "numpy", "pynvml", "optuna")
PROBE = """
import json, pathlib, sys

def pytest_unconfigure():
    pathlib.Path("loaded.json").write_text(json.dumps(sorted(sys.modules)))
"""


def loaded(project: Project, *args: str) -> set[str]:
    """The modules of a pytest run in a process of its own, with no plugin but ours and xdist's worker of json."""
    environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "probe", "-p", "pytest_kernelopt.plugin", *args]
    project.write("probe.py", PROBE)
    environ["PYTHONPATH"] = os.pathsep.join([str(project.path), environ["PYTHONPATH"]])
    done = subprocess.run(command, cwd=project.path, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 5), done.stdout + done.stderr
    return set(json.loads((project.path / "loaded.json").read_text()))


@pytest.mark.parametrize("args", [["--collect-only"], ["--help"], []])
def test_an_empty_folder_imports_nothing_heavy_and_no_parser(project: Project, args: list[str]) -> None:
    """PYT-27."""
    modules = loaded(project, *args)
    assert not {name for name in modules if name.split(".")[0] in HEAVY}
    assert not {name for name in modules if name.startswith("pytest_kernelopt.core.")} - {
        "pytest_kernelopt.core.errors",
        "pytest_kernelopt.core.folders",
    }


def test_ordinary_tests_import_nothing_heavy_either(project: Project) -> None:
    project.write("test_a.py", "def test_a(): pass\n")
    assert not {name for name in loaded(project) if name.split(".")[0] in HEAVY}


def test_collecting_kernels_imports_the_parser_and_nothing_that_is_slow(project: Project) -> None:
    project.cuda()
    project.triton()
    modules = {name.split(".")[0] for name in loaded(project, "--collect-only")}
    assert "tree_sitter" in modules
    assert not modules & (set(HEAVY) - {"tree_sitter"})


def test_a_broken_torch_does_not_keep_the_plugin_from_loading(project: Project) -> None:
    """PYT-27."""
    project.cuda()
    project.write("broken/torch/__init__.py", "raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(project.path / "broken"), os.environ["PYTHONPATH"]])}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:jaxtyping"]
    done = subprocess.run(command, cwd=project.path, env=environ, capture_output=True, text=True, timeout=120)
    assert "4 tests collected" in done.stdout, done.stdout + done.stderr


def test_the_package_says_the_version_that_it_is_built_as() -> None:
    import re

    import pytest_kernelopt

    text = (Path(pytest_kernelopt.__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.+)"', text, re.MULTILINE)
    assert found
    assert found[1] == pytest_kernelopt.__version__
