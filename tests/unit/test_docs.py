"""What the README shows is run, and what it lists is what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_kernelopt.core.errors import Unavailable
from pytest_kernelopt.core.toolchain import find_nvcc

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- (run|file: (?P<file>\S+)) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)


@pytest.fixture
def environ(tmp_path: Path, plugin_path: list[str]) -> dict[str, str]:
    """That of a user's shell in which this interpreter's ``pytest`` comes first."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "KOPT_"))}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
    kept["PYTHONPATH"] = os.pathsep.join(plugin_path)
    kept["KOPT_CACHE_DIR"] = str(tmp_path / "cache")
    return kept


def shell(commands: str, folder: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], cwd=folder, env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_ten_lines_run(tmp_path: Path, environ: dict[str, str]) -> None:
    try:
        find_nvcc()
    except Unavailable as error:
        pytest.skip(str(error))
    lines = README.splitlines()[:10]
    assert (lines[1], lines[9]) == ("```bash", "```")
    assert lines[2] == "pip install pytest-kernelopt"
    output = shell("\n".join(lines[3:9]), tmp_path, environ)
    assert "twice.cu::build PASSED" in output
    assert "failed" not in output


def test_the_files_and_commands_shown_further_down_run(tmp_path: Path, environ: dict[str, str]) -> None:
    outputs = []
    for block in BLOCK.finditer(README):
        if block["file"]:
            (tmp_path / block["file"]).parent.mkdir(exist_ok=True)
            (tmp_path / block["file"]).write_text(block["text"])
        else:
            outputs.append(shell(block["text"], tmp_path, environ))
    assert len(outputs) == 2
    assert "softmax_triton.py::correctness[rows3-cols1000] PASSED" in outputs[0]
    assert "failed" not in "".join(outputs)
    assert (tmp_path / "results.json").is_file()


def test_every_option_is_in_the_readme_and_no_other(environ: dict[str, str], tmp_path: Path) -> None:
    help_text = shell("pytest --help", tmp_path, environ)
    there = set(re.findall(r"^ +(--kopt-[a-z-]+)", help_text, re.MULTILINE))
    assert there
    assert set(re.findall(r"--kopt-[a-z]+(?:-[a-z]+)*", README)) - {"--kopt-name"} == there


def test_links_lead_to_files_that_are_there() -> None:
    for page in ("README.md", "CHANGELOG.md", "examples/README.md", "reference/README.md", "conftest_templates/README.md"):
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


def test_the_ready_conftest_gives_its_kernels_their_computed_cases(tmp_path: Path, environ: dict[str, str]) -> None:
    template = ROOT / "conftest_templates" / "computed_cases" / "conftest.py"
    (tmp_path / "conftest.py").write_bytes(template.read_bytes())
    for name in ("softmax_triton.py", "softmax_ref.py", "vector_add_triton.py", "vector_add_ref.py"):
        (source,) = ROOT.glob(f"examples/*/{name}")
        (tmp_path / name).write_bytes(source.read_bytes())
    output = shell("pytest --collect-only -q", tmp_path, environ)
    collected = re.findall(r"^softmax_triton.py::correctness\[(\S+)\]", output, re.MULTILINE)
    assert collected[0] == "rows256-cols1024"
    assert "rows256-cols1023" in collected
    assert len(collected) == 8
    assert "vector_add_triton.py::correctness[n65536]" in output
