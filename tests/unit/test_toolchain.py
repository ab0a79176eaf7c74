from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_kernelopt.core.errors import KernelError, Unavailable
from pytest_kernelopt.core.toolchain import Target, Toolchain, find_cutlass, find_nvcc, find_tool, tool_version


def program(path: Path, output: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    path.chmod(0o755)
    return path


def nvcc(path: Path, release: str) -> Path:
    return program(path, f"Cuda compilation tools, release {release}, V{release}.1")


def headers(root: Path, version: tuple[int, int, int], *, util: bool = True) -> Path:
    (root / "include" / "cutlass").mkdir(parents=True)
    defines = zip(("MAJOR", "MINOR", "PATCH"), version, strict=True)
    (root / "include" / "cutlass" / "version.h").write_text("".join(f"#define CUTLASS_{name} {n}\n" for name, n in defines))
    if util:
        (root / "tools" / "util" / "include").mkdir(parents=True)
    return root


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an environment without NVIDIA's wheels and without Triton."""
    monkeypatch.setattr("pytest_kernelopt.core.toolchain._package_folders", lambda name: [])


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("sm_90", "sm_90"),
        ("sm_90a", "sm_90a"),
        ("90a", "sm_90a"),
        ("compute_80", "sm_80"),
        ("9.0", "sm_90a"),
        ("8.9", "sm_89"),
        ("12.0", "sm_120a"),
        ("sm_100f", "sm_100f"),
    ],
)
def test_an_arch_is_taken_as_written_and_a_capability_gets_the_suffix_of_its_gpu(text: str, arch: str) -> None:
    assert Target.parse(text).arch == arch


@pytest.mark.parametrize("text", ["native", "sm_80,sm_90", "", "hopper", "sm_9"])
def test_what_is_no_single_arch_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(KernelError, match="such as sm_90a"):
        Target.parse(text)


def test_gencode_names_the_real_arch_and_embeds_no_ptx() -> None:
    assert Target.for_gpu((9, 0)).gencode == ("-gencode", "arch=compute_90a,code=sm_90a")
    assert Target.for_gpu((8, 6)).gencode == ("-gencode", "arch=compute_86,code=sm_86")
    assert Target("sm_120a").number == 120


def test_nvcc_is_found_under_usr_local_when_path_and_cuda_home_lead_nowhere(tmp_path: Path) -> None:
    expected = nvcc(tmp_path / "cuda-12.4" / "bin" / "nvcc", "12.4")
    nvcc(tmp_path / "cuda-9.2" / "bin" / "nvcc", "9.2")
    environ = {"PATH": str(tmp_path / "empty"), "CUDA_HOME": str(tmp_path / "gone")}
    found = find_nvcc(environ=environ, prefixes=[tmp_path])
    assert (found.path, found.version) == (expected, "12.4.1")


@pytest.mark.usefixtures("no_packages")
def test_every_place_that_was_tried_is_named_when_there_is_no_nvcc(tmp_path: Path) -> None:
    broken = program(tmp_path / "cuda-11" / "bin" / "nvcc", "", code=1)
    with pytest.raises(Unavailable) as error:
        find_nvcc(environ={"PATH": str(tmp_path), "CUDA_HOME": "/nowhere/cuda"}, prefixes=[tmp_path, tmp_path / "opt"])
    for place in (
        "PATH",
        "CUDA_HOME=/nowhere/cuda",
        "CUDA_PATH (not set)",
        f"{broken} (is there but does not run)",
        "wheels",
        "--kopt-nvcc",
    ):
        assert place in str(error.value)


def test_path_comes_before_cuda_home_and_a_named_nvcc_before_both(tmp_path: Path) -> None:
    for name, release in (("path/nvcc", "12.1"), ("home/bin/nvcc", "12.2"), ("named", "12.3")):
        nvcc(tmp_path / name, release)
    environ = {"PATH": str(tmp_path / "path"), "CUDA_HOME": str(tmp_path / "home")}
    assert find_nvcc(environ=environ).version == "12.1.1"
    assert find_nvcc(environ={**environ, "PATH": ""}).version == "12.2.1"
    assert find_nvcc(str(tmp_path / "named"), environ=environ).version == "12.3.1"


def test_a_named_nvcc_that_is_not_one_is_a_mistake_and_not_a_reason_to_skip(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="no such program"):
        find_nvcc(str(tmp_path / "nvcc"))
    with pytest.raises(KernelError, match="does not run as nvcc"):
        find_nvcc(str(program(tmp_path / "other", "hello")))


def test_nvcc_of_the_wheels_is_found_with_the_library_folder_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc(tmp_path / "nvidia" / "cu13" / "bin" / "nvcc", "13.2")
    monkeypatch.syspath_prepend(tmp_path)
    found = find_nvcc(environ={"PATH": ""}, prefixes=[])
    assert found.version == "13.2.1"
    assert found.extra == (f"-L{tmp_path}/nvidia/cu13/lib",)


def test_the_newest_cutlass_wins_unless_the_environment_names_one(tmp_path: Path) -> None:
    headers(tmp_path / "cutlass-3.10", (3, 10, 0))
    newest = headers(tmp_path / "cutlass-99", (99, 9, 1))
    named = headers(tmp_path / "mine", (3, 5, 1), util=False)
    found = find_cutlass(environ={}, prefixes=[tmp_path])
    assert found is not None
    assert found.version == "99.9.1"
    assert found.include == (newest / "include", newest / "tools" / "util" / "include")
    for variable, value in (("CUTLASS_PATH", named), ("CUTLASS_INCLUDE_DIR", named / "include")):
        found = find_cutlass(environ={variable: str(value)}, prefixes=[tmp_path])
        assert found is not None
        assert (found.version, found.include) == ("3.5.1", (named / "include",))


def test_cutlass_of_the_installed_package_comes_with_its_utilities() -> None:
    found = find_cutlass(environ={}, prefixes=[])
    assert found is not None
    assert (found.include[0] / "cute" / "tensor.hpp").is_file()
    assert (found.include[1] / "cutlass" / "util" / "packed_stride.hpp").is_file()


def test_cuobjdump_comes_from_triton_when_the_toolkit_has_none() -> None:
    found = find_tool("cuobjdump", environ={"PATH": ""}, prefixes=[])
    assert found is not None
    assert "triton" in found.parts
    assert tool_version(found)[0].isdigit()


def test_a_tool_in_a_toolkit_or_in_nsight_compute_is_found(tmp_path: Path) -> None:
    ncu = program(tmp_path / "nvidia" / "nsight-compute" / "2025.3.1" / "ncu", "Version 2025.3.1.0 (build 1)")
    program(tmp_path / "nvidia" / "nsight-compute" / "2024.1.0" / "ncu", "Version 2024.1")
    assert find_tool("ncu", environ={"PATH": ""}, prefixes=[tmp_path]) == ncu
    assert tool_version(ncu) == "2025.3.1.0"
    sanitizer = program(tmp_path / "cuda" / "compute-sanitizer" / "compute-sanitizer", "")
    assert find_tool("compute-sanitizer", environ={"PATH": ""}, prefixes=[tmp_path]) == sanitizer
    with pytest.raises(KernelError, match="--kopt-ncu-bin /nowhere/ncu"):
        find_tool("ncu", "/nowhere/ncu", option="--kopt-ncu-bin")


@pytest.mark.usefixtures("no_packages")
def test_without_nvcc_the_rest_is_found_and_the_reason_is_kept(tmp_path: Path) -> None:
    headers(tmp_path / "cutlass", (4, 0, 0))
    found = Toolchain.find(environ={"PATH": ""}, prefixes=[tmp_path])
    assert found.nvcc is None
    assert found.cutlass is not None
    with pytest.raises(Unavailable, match="nvcc was not found"):
        found.require_nvcc()


def test_looking_for_tools_imports_neither_torch_nor_triton() -> None:
    script = (
        "import sys; from pytest_kernelopt.core.toolchain import Toolchain; Toolchain.find(); "
        "print([m for m in ('torch', 'triton', 'cutlass_library', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
