"""Public reports of areas compile, pytest, signature and triton as their users met them: whole runs, the real evaluator."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from project import Project
from test_real import CUDA, REFERENCE, TRITON, run

# a machine with no CUDA toolkit in any of the usual places, whatever is installed here
NO_TOOLKIT = """
from pathlib import Path
from pytest_kernelopt.core import toolchain
places = (Path("/nowhere/local"), Path("/nowhere/opt"))
toolchain.find_nvcc.__kwdefaults__["prefixes"] = toolchain.Toolchain.find.__func__.__kwdefaults__["prefixes"] = places
toolchain._package_folders = lambda name: []
"""
NEWER_GPU = "echo \"nvcc fatal   : Unsupported gpu architecture 'compute_120a'\" >&2; exit 1"
NEWER_GCC = (
    "for i in 1 2 3 4 5; do echo '/usr/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! "
    "gcc versions later than 13 are not supported!' >&2; done; exit 1"
)


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A CUDA and a Triton kernel that answer to one reference, on a machine without a GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    project.write("add.cu", CUDA)
    project.write("add_triton.py", TRITON)
    project.write("add_ref.py", REFERENCE)
    return project


def fake_nvcc(project: Project, script: str) -> Path:
    release = "Cuda compilation tools, release 12.4, V12.4.131"
    path = project.write("fake/nvcc", f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{release}"; exit; fi\n{script}\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("arch", "script", "cause"),
    [
        ("sm_120a", NEWER_GPU, "add.cu does not build: nvcc 12.4.131 is too old for sm_120a, which needs CUDA 12.8 or newer: *"),
        ("sm_90a", NEWER_GCC, "*host compiler * is too new for nvcc 12.4.131 (up to 13 is supported): *NVCC_CCBIN*"),
    ],
    ids=["CMP-03", "CMP-07"],
)
def test_a_toolkit_that_cannot_build_is_one_line_and_triton_runs(here: Project, arch: str, script: str, cause: str) -> None:
    result = run(here, f"--kopt-nvcc={fake_nvcc(here, script)}", f"--kopt-arch={arch}")
    result.assert_outcomes(failed=4, passed=3, skipped=1)
    result.stdout.fnmatch_lines([cause])
    assert "Traceback" not in result.stdout.str()
    assert result.stdout.str().count("#error") <= 1, "said once"


def test_without_a_toolkit_cuda_kernels_are_skipped_with_every_place_and_triton_runs(
    here: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CMP-31."""
    here.write("no_toolkit.py", NO_TOOLKIT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(here.path), os.environ["PYTHONPATH"]]))
    monkeypatch.setenv("PATH", "/nowhere/bin")
    monkeypatch.setenv("CUDA_HOME", "/nowhere/cuda-13")
    result = run(here, "-p", "no_toolkit")
    result.assert_outcomes(passed=3, skipped=5)
    result.stdout.fnmatch_lines(
        ["SKIPPED * add.cu:5: nvcc was not found (tried PATH, CUDA_HOME=/nowhere/cuda-13, CUDA_PATH (not set), /nowhere/local/*"]
    )


def test_a_solve_without_c_linkage_is_collected_and_fails_with_the_words_to_add(here: Project) -> None:
    """CMP-29."""
    here.write("add.cu", CUDA.replace('extern "C" ', ""))
    result = run(here, "-k", "not triton")
    result.assert_outcomes(failed=1, deselected=4)
    result.stdout.fnmatch_lines(['add.cu:5: solve has no C linkage*write `extern "C"` before it*'])


def test_a_file_that_only_declares_solve_is_passed_over_beside_one_that_defines_it(here: Project) -> None:
    """SIG-25."""
    main = "int main() { float *h_val = nullptr; solve(h_val, h_val, h_val, 1); return 0; }\n"
    here.write("runner.cu", f'extern "C" void solve(const float*, const float*, float*, int);\n{main}')
    here.write("both.cu", f'extern "C" void solve(const float*, const float*, float*, int);\n{CUDA}{main}')
    here.write("both_ref.py", REFERENCE)
    collected = run(here, "--collect-only", "-q").stdout.str()
    assert "runner.cu" not in collected
    assert "both.cu::correctness[n1000]" in collected
    assert "h_val" not in run(here, "runner.cu").stdout.str()


def test_a_broken_torch_costs_the_kernel_items_only_and_is_their_reason(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """PYT-27."""
    here.write("broken/torch/__init__.py", "raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    here.write("test_other.py", "def test_it(): pass\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(here.path / "broken"), os.environ["PYTHONPATH"]]))
    result = run(here, "-p", "no:jaxtyping", "test_other.py", "add_triton.py")
    assert result.parseoutcomes().get("passed") == 1
    assert result.parseoutcomes().get("errors") is None
    assert "libcudart.so.13: cannot open shared object file" in result.stdout.str()
    assert "INTERNALERROR" not in result.stdout.str()


LIBDEVICE = "from triton.language.extra import libdevice\n" + TRITON.replace(
    "tl.load(x + i, mask=mask) +", "libdevice.asin(tl.load(x + i, mask=mask)) +"
)


def test_what_the_interpreter_lacks_is_a_skip_that_says_so(here: Project) -> None:
    """TRI-13; and what it does is labelled as interpreted in the table, the record and the header (TRI-11)."""
    here.write("asin_triton.py", LIBDEVICE)
    here.write("asin_ref.py", REFERENCE.replace("return x + y", "import torch\n    return torch.asin(x) + y"))
    result = run(here, "-k", "correctness and triton", "--kopt-json=r.json")
    result.assert_outcomes(passed=2, skipped=2, deselected=8)
    result.stdout.fnmatch_lines(
        [
            "kernelopt: no GPU (*): Triton runs in the interpreter*",
            "add_triton.py *interpreted*",
            "SKIPPED * asin_triton.py:*: libdevice functions return nothing in Triton's interpreter: this kernel needs a GPU",
        ]
    )
    records = [item["correctness"] for item in here.json("r.json")["items"].values() if "correctness" in item]
    assert {record["mode"] for record in records} == {"interpreter"}


SOURCE = """
import inspect
import os

@triton.jit
def made_later(x):
    return x

def source_of(function):
    return inspect.getsource(function.fn)
"""


def test_a_kernel_is_a_real_file_that_stays_while_it_is_in_use(here: Project) -> None:
    """TRI-07: Triton reads the source of what it compiles."""
    kernel = TRITON.replace("def run_kernel(x, y, out, n):\n", f"{SOURCE}\ndef run_kernel(x, y, out, n):\n    check()\n")
    kernel += "\ndef check():\n    assert os.path.isfile(__file__)\n    assert 'return x' in source_of(made_later)\n"
    here.write("add_triton.py", kernel)
    run(here, "add_triton.py").assert_outcomes(passed=3, skipped=1)
