"""The compiler's own signature, from the debug information of real nvcc builds, against the one read from the source."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_kernelopt.core.build.dwarf import check_signature
from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.spec import KernelSpec, load

NVCC = shutil.which("nvcc") or "/usr/local/bin/nvcc"
pytestmark = pytest.mark.skipif(not Path(NVCC).exists(), reason="no nvcc on this machine")

EVERYTHING = """\
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <cuComplex.h>

#define EXPORT extern "C" __attribute__((visibility("default")))
typedef const float* readonly;
using Real = float;

template <class T> __global__ void copy(const T* a, T* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i];
}

namespace other { void solve(double only) {} }

EXPORT cudaError_t solve(const float* __restrict__ A, float* const B, readonly C, const readonly C2, Real* R, half* h,
                         const __nv_bfloat16* bf, __nv_fp8_e4m3* e4, __nv_fp8_e5m2* e5, float4* q, const half2* h2,
                         const void* anything, double* d, bool* flags, char* c, unsigned char* uc, int8_t* i8,
                         uint16_t* u16, short int* s16, unsigned* u32, long long* ll, std::size_t* sizes, cuComplex* z,
                         int n, unsigned long m, float alpha, double eps, bool causal, char letter, uint8_t u8,
                         int64_t i64, half hs, __nv_bfloat16 bs, float tail[], const int idx[4], cudaStream_t stream) {
    copy<float><<<(n + 255) / 256, 256, 0, stream>>>(A, B, n);
    return cudaGetLastError();
}
"""


def build(folder: Path, source: str, *flags: str, name: str = "k.cu") -> Path:
    kernel = folder / name
    kernel.write_text(source)
    library = kernel.with_suffix(".so")
    command = [NVCC, "-O3", "-std=c++17", "-gencode", "arch=compute_90,code=sm_90", "-shared", "-Xcompiler", "-fPIC", *flags]
    subprocess.run([*command, str(kernel), "-o", str(library)], check=True, capture_output=True, timeout=300)
    return library


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KernelSpec]:
    folder = tmp_path_factory.mktemp("dwarf")
    library = build(folder, EVERYTHING, "-g")
    return library, load(folder / "k.cu")


def test_a_signature_of_every_type_agrees_with_the_compiler(everything: tuple[Path, KernelSpec]) -> None:
    library, spec = everything
    assert len(spec.parameters) == 36
    assert check_signature(library, spec) == ()


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("A", {"dtype": "float64"}, "parameter 1 `A` was compiled as `const float*`, which is float of 4 bytes and not float64"),
        ("A", {"dtype": "int32"}, "float of 4 bytes and not int32"),
        ("A", {"const": False}, "parameter 1 `A` was compiled as `const float*`, which is const"),
        ("B", {"const": True}, "which is not const"),
        ("C", {"const": False}, "which is const"),
        ("h", {"dtype": "bfloat16"}, "which is float16 and not bfloat16"),
        ("e4", {"dtype": "float8_e5m2"}, "which is float8_e4m3fn and not float8_e5m2"),
        ("q", {"lanes": 2}, "which is float32 x 4 and not float32 x 2"),
        ("q", {"lanes": 1}, "which is float32 x 4 and not float32"),
        ("anything", {"dtype": "float32"}, "which is void and not float32"),
        ("d", {"dtype": None}, "which is not void*"),
        ("u32", {"dtype": "int32"}, "uint of 4 bytes and not int32"),
        ("n", {"dtype": "int64"}, "parameter 24 `n` was compiled as `int`, which is int of 4 bytes and not int64"),
        ("n", {"kind": "tensor"}, "which is no pointer"),
        ("d", {"kind": "scalar"}, "which is a pointer"),
        ("alpha", {"dtype": "float64"}, "float of 4 bytes and not float64"),
        ("hs", {"dtype": "bfloat16"}, "which is float16 and not bfloat16"),
        ("stream", {"kind": "tensor", "dtype": None}, "which is not what was read"),
        ("ll", {"kind": "stream", "dtype": None}, "which is not what was read"),
    ],
)
def test_one_wrong_parameter_is_named_with_the_difference(
    everything: tuple[Path, KernelSpec], name: str, change: dict[str, object], reason: str
) -> None:
    library, spec = everything
    parameters = tuple(replace(p, **change) if p.name == name else p for p in spec.parameters)  # type: ignore[arg-type]
    with pytest.raises(KernelError) as error:
        check_signature(library, replace(spec, parameters=parameters))
    assert reason in str(error.value)
    assert f"k.cu:{spec.line}" in str(error.value)
    assert str(error.value).count("parameter ") == 1


def test_a_missing_parameter_and_a_missing_status_are_both_told(everything: tuple[Path, KernelSpec]) -> None:
    library, spec = everything
    with pytest.raises(KernelError) as error:
        check_signature(library, replace(spec, parameters=spec.parameters[:-1], returns_status=False))
    assert "36 parameters were compiled and 35 were read" in str(error.value)
    assert "it returns `cudaError_t`, and was read as returning nothing" in str(error.value)


def test_a_macro_given_on_the_command_line_cannot_change_the_type_unseen(tmp_path: Path) -> None:
    source = '#ifndef REAL\n#define REAL float\n#endif\nextern "C" void solve(const REAL* x, REAL* y, int n) {}\n'
    library = build(tmp_path, source, "-g", "-DREAL=double")
    with pytest.raises(KernelError, match=r"k\.cu:4: .*`x` was compiled as `const double\*`, which is float of 8 bytes"):
        check_signature(library, load(tmp_path / "k.cu"))


def test_a_library_without_debug_information_is_noted_and_not_refused(tmp_path: Path) -> None:
    library = build(tmp_path, 'extern "C" void solve(const float* x, float* y, int n) {}\n')
    notes = check_signature(library, load(tmp_path / "k.cu"))
    assert len(notes) == 1
    assert "no debug information for solve" in notes[0]


def test_a_file_that_is_no_library_is_one_sentence(tmp_path: Path, everything: tuple[Path, KernelSpec]) -> None:
    (tmp_path / "k.so").write_bytes(b"not an ELF file at all")
    with pytest.raises(KernelError, match="debug information cannot be read"):
        check_signature(tmp_path / "k.so", everything[1])
