"""The wheel: what is in it, and that a kernel runs by it alone in an environment that has never seen this checkout."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "01_vector_add"


def call(*command: str | Path, cwd: Path) -> str:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "KOPT_", "PYTHONPATH"))}
    environ["KOPT_CACHE_DIR"] = str(cwd / "cache")
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel; its dependencies are this environment's, so that no network is needed."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    purelib = sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
    Path(purelib, "dependencies.pth").write_text("\n".join([sysconfig.get_path("purelib"), *site.getsitepackages()]) + "\n")
    call(sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    return interpreter


def test_the_wheel_holds_types_knowledge_base_templates_and_licence_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for needed in (
        "pytest_kernelopt/py.typed",
        "pytest_kernelopt/plugin.py",
        "pytest_kernelopt/core/cuda_probe.py",
        "pytest_kernelopt/_reference/README.md",
        "pytest_kernelopt/_conftest_templates/computed_cases/conftest.py",
    ):
        assert needed in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pytest_kernelopt"}
    assert [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".so"))] == []


def test_the_metadata_names_the_plugin_and_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(archive.read(n).decode() for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        entry_points = next(archive.read(n).decode() for n in archive.namelist() if n.endswith("entry_points.txt"))
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.10" in metadata
    assert "[pytest11]\nkernelopt = pytest_kernelopt.plugin" in entry_points


def test_an_example_runs_by_the_wheel_alone(python: Path, tmp_path: Path) -> None:
    for name in ("vector_add_triton.py", "vector_add_ref.py"):
        (tmp_path / name).write_bytes((EXAMPLE / name).read_bytes())
    code = "import pytest_kernelopt; print(pytest_kernelopt.__file__)"
    assert call(python, "-c", code, cwd=tmp_path).startswith(str(python.parents[1]))
    output = call(python, "-m", "pytest", "-v", "--kopt-json", "results.json", "--kopt-dims", "n=1000", cwd=tmp_path)
    assert "vector_add_triton.py::correctness[n1000] PASSED" in output
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["schema_version"] == 1


def test_the_licence_is_the_unmodified_apache_text() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.splitlines()[1].strip() == "Apache License"
    assert "END OF TERMS AND CONDITIONS" in text
    assert text.count("\n") == 202
