"""Compilers and profilers, each tried on something small: a tool that is there may still not work."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from ..build import cutlass as cutlass_build
from ..toolchain import tool_version
from .context import Context, first_line, output_of, result

if TYPE_CHECKING:
    from ..records import Check

_PROGRAM = r"""#include <cstdio>
__global__ void one(int* x) { *x = 1; }
int main() {
  int *x = nullptr, y = 0;
  cudaMalloc(&x, sizeof(int));
  one<<<1, 1>>>(x);
  cudaMemcpy(&y, x, sizeof(int), cudaMemcpyDefault);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) std::printf("CUDA error: %s\n", cudaGetErrorString(error));
  return y == 1 ? 0 : 1;
}
"""
_HEADERS = r"""#include <cutlass/cutlass.h>
#include <cute/layout.hpp>
__global__ void one(int* x) { *x = cute::size(cute::Layout<cute::Shape<cute::_2, cute::_3>>{}); }
"""
_HOST = "#include <vector>\nint main() { std::vector<int> v(3); return static_cast<int>(v.size()) - 3; }\n"
_PYTHON = "#include <Python.h>\nint kopt_python_headers;\n"

_NVCC_REMEDY = "pip install 'pytest-kernelopt[nvcc]', or install the CUDA toolkit, or name an nvcc with --kopt-nvcc"
_CXX_REMEDY = "apt-get install g++ (or your distribution's C++ compiler), or name one in NVCC_CCBIN"
_COUNTERS_REMEDY = (
    "run as root; or in the container's command: --cap-add=SYS_ADMIN; or once on the host: "
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf, then reboot"
)


def nvcc(context: Context) -> Check:
    """Compile a program for the target, and leave it for the checks that run one."""
    name, required = "nvcc", context.needs_nvcc
    found = context.toolchain.nvcc
    if found is None:
        detail = context.toolchain.nvcc_missing or "nvcc was not found"
        return result(name, "missing", detail, _NVCC_REMEDY, required=required)
    source = context.folder / "program.cu"
    source.write_text(_PROGRAM)
    status, output = context.execute([found.path, *context.target.gencode, *found.extra, source.name, "-o", "program"])
    if status != 0 or context.program is None:
        codes = output_of([found.path, "--list-gpu-code"], context.environ).split()
        if codes and context.target.arch not in codes and f"sm_{context.target.number}" not in codes:
            detail = f"nvcc {found.version} does not compile for {context.target.arch}: it knows {codes[0]} to {codes[-1]}"
            return result(name, "missing", detail, "use a CUDA toolkit that knows this GPU", required=required)
        detail = f"nvcc {found.version} ({found.path}) does not compile: {first_line(output, status)}"
        return result(name, "missing", detail, _NVCC_REMEDY, required=required)
    detail = f"nvcc {found.version} ({found.path}) compiles for {context.target.arch}"
    return result(name, "ok", detail, required=required)


def host_compiler(context: Context) -> Check:
    name, required = "host compiler", context.needs_nvcc
    compiler = context.environ.get("NVCC_CCBIN") or "g++"
    source = context.folder / "host.cpp"
    source.write_text(_HOST)
    status, output = context.execute([compiler, "-std=c++17", source.name, "-o", "host"])
    if status != 0:
        detail = f"{compiler} does not compile C++17: {first_line(output, status)}"
        return result(name, "missing", detail, _CXX_REMEDY, required=required)
    return result(name, "ok", f"{context.toolchain.host_compiler or compiler} compiles and links C++17", required=required)


def python_headers(context: Context) -> Check:
    """Triton compiles its launcher against Python.h where it launches kernels."""
    name, include = "Python headers", sysconfig.get_paths()["include"]
    source = context.folder / "headers.c"
    source.write_text(_PYTHON)
    compiler = context.environ.get("CC") or "gcc"
    status, output = context.execute([compiler, f"-I{include}", "-fsyntax-only", source.name])
    if status == 0:
        return result(name, "ok", f"{include}/Python.h compiles")
    remedy = "apt-get install python3-dev gcc (for this Python's version), or set CC"
    return result(name, "warning", f"Triton can't compile its launcher: {first_line(output, status)}", remedy)


def cutlass(context: Context) -> Check:
    name, required = "CUTLASS headers", "cutlass" in context.backends
    found, compiler = context.toolchain.cutlass, context.toolchain.nvcc
    remedy = "pip install --no-deps nvidia-cutlass, or set CUTLASS_PATH to a CUTLASS checkout"
    if found is None:
        return result(name, "missing", "cutlass/version.h was not found", remedy, required=required)
    where = f"CUTLASS {found.version} ({found.include[0]})"
    if compiler is None:
        return result(name, "warning", f"{where}: there, but not tried: no nvcc", required=required)
    source = context.folder / "headers.cu"
    source.write_text(_HEADERS)
    flags = ["-std=c++17", *context.target.gencode, *compiler.extra, *cutlass_build.flags(context.toolchain)]
    status, output = context.execute([compiler.path, *flags, "-cubin", source.name, "-o", "headers.cubin"])
    if status != 0:
        return result(name, "missing", f"{where} does not compile: {first_line(output, status)}", remedy, required=required)
    return result(name, "ok", f"{where} compiles", required=required)


def ncu(context: Context) -> Check:
    name, path = "ncu", context.toolchain.ncu
    remedy = "install Nsight Compute (with the CUDA toolkit: apt-get install cuda-nsight-compute-<version>)"
    if path is None:
        return result(name, "missing", "Nsight Compute was not found; only profiling needs it", remedy)
    version = tool_version(path)
    if not version:
        return result(name, "missing", f"{path} does not run", remedy)
    where = f"ncu {version} ({path})"
    if context.gpu is None or context.program is None:
        return result(name, "warning", f"{where}: there, but not tried: {_untried(context)}")
    metrics = ("--metrics", "gpu__time_duration.sum", "--launch-count", "1")
    status, output = context.execute([path, *metrics, context.program], seconds=120)
    if "ERR_NVGPUCTRPERM" in output:
        detail = f"{where} may not read the GPU's counters: ERR_NVGPUCTRPERM"
        return result(name, "missing", detail, _COUNTERS_REMEDY)
    if status != 0 or "gpu__time_duration.sum" not in output:
        return result(name, "missing", f"{where} does not profile: {first_line(output, status)}", remedy)
    return result(name, "ok", f"{where} profiles a kernel")


def compute_sanitizer(context: Context) -> Check:
    name, path = "compute-sanitizer", context.toolchain.compute_sanitizer
    remedy = "pip install 'pytest-kernelopt[sanitizer]', or install the CUDA toolkit"
    if path is None:
        return result(name, "missing", "compute-sanitizer was not found; only memory checks need it", remedy)
    version = tool_version(path)
    if not version:
        return result(name, "missing", f"{path} does not run", remedy)
    where = f"compute-sanitizer {version} ({path})"
    if context.gpu is None or context.program is None:
        return result(name, "warning", f"{where}: there, but not tried: {_untried(context)}")
    status, output = context.execute([path, "--error-exitcode", "9", context.program], seconds=120)
    if status != 0 or not re.search(r"ERROR SUMMARY: 0 errors", output):
        return result(name, "missing", f"{where} does not work: {first_line(output, status)}", remedy)
    return result(name, "ok", f"{where} checks a kernel")


def driver_runs_it(context: Context, program: Path) -> str:
    """Empty when the compiled program runs on the GPU, else what it says."""
    status, output = context.execute([program], seconds=60)
    return "" if status == 0 else first_line(output, status)


def _untried(context: Context) -> str:
    return "no GPU" if context.gpu is None else "nothing could be compiled"
