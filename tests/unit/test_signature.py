"""The signature of a .cu file: every parameter's type and name right, or refused with file, line and reason."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.spec import has_entry, load
from pytest_kernelopt.core.spec.model import KernelSpec

USUAL = "(const float* A, float* B, int N)"
SOLVE = f'extern "C" void solve{USUAL}'
USUAL_PARAMETERS = ["A: const float32*", "B: float32*", "N: int32"]


def spec_of(folder: Path, source: str | bytes, name: str = "k.cu") -> KernelSpec:
    (folder / name).write_bytes(source if isinstance(source, bytes) else source.encode())
    return load(folder / name)


def shown(spec: KernelSpec) -> list[str]:
    """Every parameter as ``name: [const ]dtype[xlanes][*]``."""
    result = []
    for p in spec.parameters:
        lanes = f"x{p.lanes}" if p.lanes > 1 else ""
        kind = {"tensor": "*", "scalar": "", "stream": "stream", "unknown": "?"}[p.kind]
        result.append(f"{p.name}: {'const ' if p.const else ''}{p.dtype or ('void' if p.kind == 'tensor' else '')}{lanes}{kind}")
    return result


def refusal(folder: Path, source: str | bytes) -> str:
    with pytest.raises(KernelError) as error:
        spec_of(folder, source)
    message = str(error.value)
    assert "\n" not in message
    return message


# Each row: the parameter as written after `const float* A, `, and what it is.
PARAMETERS = {
    # the star at the name, __restrict__ and its spellings
    "float *B": "B: float32*",
    "const float *B": "B: const float32*",
    "float* __restrict__ B": "B: float32*",
    "const float *__restrict__ B": "B: const float32*",
    "float * __restrict B": "B: float32*",
    # row 3
    "float alpha": "alpha: float32",
    "const float gamma": "gamma: float32",
    "double eps": "eps: float64",
    "bool causal": "causal: bool",
    # row 4
    "half* h": "h: float16*",
    "const __half *h": "h: const float16*",
    "__nv_bfloat16* h": "h: bfloat16*",
    "nv_bfloat16* h": "h: bfloat16*",
    "__nv_fp8_e4m3* q": "q: float8_e4m3fn*",
    "const __nv_fp8_e5m2* q": "q: const float8_e5m2*",
    # rows 5 to 8
    "long long* out": "out: int64*",
    "long long M": "M: int64",
    "long int M": "M: int64",
    "const short int* S": "S: const int16*",
    "int64_t M": "M: int64",
    "uint32_t* u": "u: uint32*",
    "int8_t* q": "q: int8*",
    "std::size_t M": "M: uint64",
    "::size_t M": "M: uint64",
    "size_t* sizes": "sizes: uint64*",
    "std::uint8_t* u": "u: uint8*",
    "unsigned M": "M: uint32",
    "unsigned *x": "x: uint32*",
    "unsigned long M": "M: uint64",
    "int long unsigned M": "M: uint64",
    "signed int M": "M: int32",
    "signed M": "M: int32",
    "unsigned long long int M": "M: uint64",
    "long M": "M: int64",
    "char c": "c: int8",
    "signed char* c": "c: int8*",
    "unsigned char* c": "c: uint8*",
    "unsigned short* s": "s: uint16*",
    "uint16_t s": "s: uint16",
    # row 9 and 10: const of the pointer, and const inside a name
    "float* const B": "B: float32*",
    "float const * const __restrict__ B": "B: const float32*",
    "float const* B": "B: const float32*",
    "int const* idx": "idx: const int32*",
    "float* constB": "constB: float32*",
    "float* reconst": "reconst: float32*",
    "int num_constraints": "num_constraints: int32",
    # row 16: what is accepted of it
    "float B[]": "B: float32*",
    "const float B[16]": "B: const float32*",
    "float4* q": "q: float32x4*",
    "const float2 *q": "q: const float32x2*",
    "half2* q": "q: float16x2*",
    "__nv_bfloat162* q": "q: bfloat16x2*",
    "int4* q": "q: int32x4*",
    "uchar4* q": "q: uint8x4*",
    "void* raw": "raw: void*",
    "const void *raw": "raw: const void*",
    "cudaStream_t stream": "stream: stream",
    "CUstream stream": "stream: stream",
    "CUstream_st* stream": "stream: stream",
    "[[maybe_unused]] int M": "M: int32",
    "alignas(16) float* B": "B: float32*",
    "__attribute__((unused)) int M": "M: int32",
    "volatile float* B": "B: float32*",
    "cuComplex* z": "z: complex64*",
    "cutlass::half_t* h": "h: float16*",
    "const cutlass::bfloat16_t* h": "h: const bfloat16*",
    "cute::float_e4m3_t* h": "h: float8_e4m3fn*",
    # by value, of every kind
    "half alpha": "alpha: float16",
    "const __nv_bfloat16 alpha": "alpha: bfloat16",
    "__nv_fp8_e4m3 scale": "scale: float8_e4m3fn",
    "uint8_t byte": "byte: uint8",
    "short s": "s: int16",
    # names as they are
    "int größe": "größe: int32",
    "int _n1": "_n1: int32",
}


@pytest.mark.parametrize("written", PARAMETERS)
def test_a_parameter_has_its_type_and_name(tmp_path: Path, written: str) -> None:
    spec = spec_of(tmp_path, f'extern "C" void solve(const float* A, {written}, int N) {{}}\n')
    assert shown(spec) == ["A: const float32*", PARAMETERS[written], "N: int32"]


REFUSED = {
    "float** p": "a pointer to pointers",
    "const float* const* p": "a pointer to pointers",
    "struct Config c": "a struct",
    "enum Mode m": "an enum",
    "Config c": "the type `Config` is not known here",
    "const int& M": "a reference is not passed",
    "float&& f": "a reference is not passed",
    "int": "it has no name",
    "const float*": "it has no name",
    "std::vector<int> v": "a template type",
    "Vec<float, (2 > 1)> v": "a template type",
    "void (*callback)(int)": "a function pointer",
    "float (*grid)[4]": "a function pointer or a pointer to an array",
    "float grid[][4]": "an array of arrays",
    "float4 v": "a `float4` by value",
    "cuComplex z": "a `cuComplex` by value",
    "auto x": "`auto` is no type",
    "T x": "the type `T` is not known here",
    "long double d": "the type `long double` is not known here",
    "wchar_t w": "the type `wchar_t` is not known here",
    "cudaStream_t* s": "the type `cudaStream_t` is not known here",
    "cublasHandle_t h": "the type `cublasHandle_t` is not known here",
    "...": "a fixed number of arguments",
    "PTR(float) p": "a function pointer",
    "float* p q": "it is not understood",
}


@pytest.mark.parametrize("written", REFUSED)
def test_what_cannot_be_passed_is_refused_with_file_line_parameter_and_reason(tmp_path: Path, written: str) -> None:
    message = refusal(tmp_path, f'\nextern "C" void solve(const float* A,\n    {written},\n    int N) {{}}\n')
    assert f"k.cu:3: parameter 2 of solve, `{written}`: " in message
    assert REFUSED[written] in message


DEFAULTS = {
    "int N = 1024": 1024,
    "int N = 4 * (1 << 3) / 3": 10,
    "int N = -7 / 2": -3,
    "int N = 1'000'000": 1000000,
    "int N = 0x10u": 16,
    "int N = 010": 8,
    "int N = 1e3": 1000,
    "size_t N = 1ull << 40": 1 << 40,
    "float N = 1e-5f": 1e-5,
    "float N = 1": 1.0,
    "double N = -.5": -0.5,
    "bool N = true": True,
    "int N = BLOCK * 2": 512,
}


@pytest.mark.parametrize("written", DEFAULTS)
def test_a_default_is_the_value_that_c_gives_it(tmp_path: Path, written: str) -> None:
    spec = spec_of(tmp_path, f'#define BLOCK 256\nextern "C" void solve(float* A, {written}) {{}}\n')
    assert spec.parameters[1].has_default
    assert spec.parameters[1].default == DEFAULTS[written]
    assert type(spec.parameters[1].default) is type(DEFAULTS[written])


def test_a_default_that_only_a_compiler_knows_is_no_default(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, 'extern "C" void solve(float* A, int N = sizeof(int), int M = limit()) {}\n')
    assert shown(spec)[1:] == ["N: int32", "M: int32"]
    assert [p.has_default for p in spec.parameters] == [False, False, False]


def test_a_null_default_makes_a_pointer_optional(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, 'extern "C" void solve(float* A, const float* mask = nullptr) {}\n')
    assert (spec.parameters[1].has_default, spec.parameters[1].default) == (True, None)


def test_a_default_in_the_declaration_counts_for_the_definition(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, f'extern "C" void solve(const float*, float* B, int N = 77);\n{SOLVE} {{}}\n')
    assert (spec.parameters[2].default, spec.parameters[2].line) == (77, 2)


DEAD = 'extern "C" void solve(double* dead, long old) {}\n'
ACCEPTED = {
    # rows 11 to 14
    "an earlier version in a line comment": f"// {DEAD}{SOLVE} {{}}",
    "an earlier version in a block comment": f"/* {DEAD} */{SOLVE} {{}}",
    "an earlier version under #if 0": f"#if 0\n{DEAD}#endif\n{SOLVE} {{}}",
    "a later version under #if 0": f"{SOLVE} {{}}\n#if 0\n{DEAD}#endif\n",
    "the #else of #if 0": f"#if 0\n{DEAD}#else\n{SOLVE} {{}}\n#endif\n",
    "the #if 1 of two": f"#if 1\n{SOLVE} {{}}\n#else\n{DEAD}#endif\n",
    "nested dead code": f"#if 0\n#ifdef X\n{DEAD}#endif\n{DEAD}#endif\n{SOLVE} {{}}",
    "prose under #if 0": f"#if 0\ndon't /* use this\nit's old */\n#endif\n{SOLVE} {{}}",
    "a version for the device pass": f"#ifdef __CUDA_ARCH__\n{DEAD}#else\n{SOLVE} {{}}\n#endif\n",
    "a version chosen by a number": f"#define V 2\n#if V == 1\n{DEAD}#elif V >= 2 && !defined(OLD_V)\n{SOLVE} {{}}\n#endif\n",
    "an undefined name": f"#define V\n#undef V\n#ifdef V\n{DEAD}#else\n{SOLVE} {{}}\n#endif\n",
    "a forward declaration": f"{SOLVE};\n__global__ void k(const float* X, float* Y, int n) {{}}\n"
    f"{SOLVE} {{ k<<<1, 2>>>(A, B, N); }}",
    "a comment with brackets in the list": 'extern "C" void solve(const float* A, /* layout (M) { row } */ float* B, int N) {}',
    "a long comment in the list": 'extern "C" void solve(const float* A, /* a,\n b), {\n c */ float* B, // out, {\n int N) {}',
    # row 15
    'an extern "C" block': f'extern "C" {{\nvoid solve{USUAL} {{}}\n}}\n',
    "the block under __cplusplus": f'#ifdef __cplusplus\nextern "C" {{\n#endif\n'
    f"void solve{USUAL} {{}}\n#ifdef __cplusplus\n}}\n#endif\n",
    "an attribute": f'extern "C" __attribute__((visibility("default"))) void solve{USUAL} {{}}',
    "an attribute after the type": f'extern "C" void __attribute__((noinline)) solve{USUAL} {{}}',
    "a standard attribute": f'extern "C" [[gnu::used]] void solve{USUAL} {{}}',
    "__host__": f'extern "C" __host__ void solve{USUAL} {{}}',
    "__host__ __device__": f'extern "C" __host__ __device__ void solve{USUAL} {{}}',
    "a macro for all of it": f'#define EXPORT extern "C" __attribute__((visibility("default")))\nEXPORT void solve{USUAL} {{}}',
    "a macro per platform": '#ifdef _WIN32\n#define API extern "C" __declspec(dllexport)\n#else\n#define API extern "C"\n#endif\n'
    f"API void solve{USUAL} {{}}",
    "a macro of some header": f'extern "C" SOME_EXPORT void solve{USUAL} {{}}',
    "noexcept": f"{SOLVE} noexcept {{}}",
    "a comment before the body": f"{SOLVE} // x {{\n{{}}",
    "a comment after the C": f'extern "C" /* ABI */ void solve{USUAL} {{}}',
    "a trailing return type": f'extern "C" auto solve{USUAL} -> void {{}}',
    "the name by a macro": f'#define ENTRY solve\nextern "C" void ENTRY{USUAL} {{}}',
    # what else the research tried
    "another solve without C linkage": f"namespace x {{ void solve(int q) {{}} }}\n{SOLVE} {{}}\nvoid solve(float* only) {{}}\n",
    "called before it is defined": f"{SOLVE};\nint main() {{ solve(nullptr, nullptr, 3); }}\n{SOLVE} {{}}",
    "C linkage by an earlier declaration": f'extern "C" void solve(const float*, float*, int);\nvoid solve{USUAL} {{}}',
    "its text in a string": f'const char* s = "extern \\"C\\" void solve(int x) {{";\n{SOLVE} {{}}',
    "its text in a raw string": f'const char* s = R"(\n#if 0\nextern "C" void solve(int x) {{}}\n)";\n{SOLVE} {{}}',
    "braces in character literals": f"const char a = '{{', b = '\"', c = '\\'';\n{SOLVE} {{}}",
    "line continuations": 'extern "C" void \\\nsolve(const float* A, \\\n float* B, \\\n int N) {}',
    "an include guard": f"#ifndef K_CU\n#define K_CU\n{SOLVE} {{}}\n#endif\n",
    "a function-try-block": f"{SOLVE} try {{}} catch (...) {{}}",
    "macros that name each other": f"#define float float\n#define P Q Q\n#define Q P P\n{SOLVE} {{}}",
    "asm, digit separators and alignment": f'__global__ void k() {{ __align__(16) int x = 1\'000; asm("bra {{");}}\n{SOLVE} {{}}',
    "a class with a solve of its own": f"struct S {{ void solve(int a) {{}} }};\n{SOLVE} {{}}",
}


@pytest.mark.parametrize("what", ACCEPTED)
def test_the_live_definition_is_found_past(tmp_path: Path, what: str) -> None:
    spec = spec_of(tmp_path, ACCEPTED[what] + "\n")
    assert shown(spec) == USUAL_PARAMETERS
    assert not spec.returns_status
    assert has_entry(tmp_path / "k.cu")


ALIASES = {
    "typedef float T;": ("T* x", "x: float32*"),
    "using T = float;": ("const T* x", "x: const float32*"),
    "#define T float": ("T x", "x: float32"),
    "typedef __half half_type; using T = half_type;": ("T* x", "x: float16*"),
    "#define A1 unsigned\n#define T A1 char": ("const T* x", "x: const uint8*"),
    "typedef float* T;": ("const T x", "x: float32*"),
    "typedef const float* T;": ("T x", "x: const float32*"),
    "using T = const float;": ("T* x", "x: const float32*"),
    "typedef float T[4];": ("T x", "x: float32*"),
    "using T = cudaStream_t;": ("T x", "x: stream"),
    "namespace types { using T = double; }": ("types::T* x", "x: float64*"),
    "__global__ void k() { using T = double; }\nusing T = float;\nstruct S { using T = half; };": ("T* x", "x: float32*"),
    "#ifndef T\n#define T float\n#endif": ("T* x", "x: float32*"),
    "#define H\n#ifdef H\ntypedef half T;\n#else\ntypedef float T;\n#endif": ("T* x", "x: float16*"),
}


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_of_a_simple_type_is_followed(tmp_path: Path, alias: str) -> None:
    written, right = ALIASES[alias]
    assert shown(spec_of(tmp_path, f'{alias}\nextern "C" void solve({written}) {{}}\n')) == [right]


@pytest.mark.parametrize(
    ("alias", "written", "reason"),
    [
        ("typedef struct { int a; } T;", "T x", "the type `T` is not known here"),
        ("struct T { int a; };", "T x", "the type `T` is not known here"),
        ("struct S {}; typedef struct S T;", "T* x", "the type `T` is not simple (a struct"),
        ("using T = std::vector<float>;", "T* x", "the type `T` is not simple (a template type"),
        ("typedef float* T;", "T* x", "a pointer to pointers"),
        ("typedef U T; typedef T U;", "T* x", "is defined by itself"),
        ("__global__ void k() { using T = double; }", "T* x", "the type `T` is not known here"),
        ("#ifdef H\ntypedef half T;\n#else\ntypedef float T;\n#endif", "T* x", "`#ifdef H`, line 1"),
    ],
)
def test_an_alias_that_is_not_simple_or_not_decided_is_refused(tmp_path: Path, alias: str, written: str, reason: str) -> None:
    assert reason in refusal(tmp_path, f'{alias}\nextern "C" void solve({written}) {{}}\n')


@pytest.mark.parametrize("written", ["", "void", " void ", "\n", "/* nothing */"])
def test_no_parameters(tmp_path: Path, written: str) -> None:
    assert spec_of(tmp_path, f'extern "C" void solve({written}) {{}}\n').parameters == ()


CONDITIONAL = 'extern "C" void solve(const float* A,\n#ifdef X\n  int a,\n#else\n  float a,\n#endif\n  int n) {}\n'


def test_a_condition_in_the_list_that_nothing_here_decides_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, CONDITIONAL)
    assert "k.cu:1: the signature of solve depends on a condition" in message
    assert "`#ifdef X`, line 2" in message


@pytest.mark.parametrize(
    ("before", "right"),
    [("#define X\n", "a: int32"), ("#define X\n#undef X\n", "a: float32"), ("// kopt: flags = -DX\n", "a: int32")],
)
def test_a_condition_in_the_list_is_decided_by_what_the_file_defines(tmp_path: Path, before: str, right: str) -> None:
    assert shown(spec_of(tmp_path, before + CONDITIONAL))[1] == right


def test_a_middle_elif_with_another_signature_is_not_overlooked(tmp_path: Path) -> None:
    source = "#if X == 1\n#define T float\n#elif X == 2\n#define T double\n#else\n#define T float\n#endif\n"
    assert "depends on a condition" in refusal(tmp_path, source + 'extern "C" void solve(T* x) {}\n')


def test_a_condition_that_changes_nothing_called_is_no_matter(tmp_path: Path) -> None:
    source = "#ifdef DEBUG\n#define LOG(x) printf(x)\n#else\n#define LOG(x)\n#endif\n"
    source += f'{SOLVE} {{\n#ifdef FAST\n  LOG("f");\n#endif\n}}\n'
    assert shown(spec_of(tmp_path, source)) == USUAL_PARAMETERS


def test_two_heads_for_one_body_under_a_condition_are_refused(tmp_path: Path) -> None:
    source = '#ifdef V2\nextern "C" void solve(int a) {\n#else\nextern "C" void solve(int a, int b) {\n#endif\n}\n'
    assert "`#ifdef V2`, line 1" in refusal(tmp_path, source)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("void", False),
        ("int", True),
        ("cudaError_t", True),
        ("enum cudaError", True),
        ("SOME_EXPORT cudaError_t", True),
        ("SOME_EXPORT int", True),
        ("int32_t", True),
    ],
)
def test_a_return_type_is_nothing_or_a_status(tmp_path: Path, head: str, status: bool) -> None:
    assert spec_of(tmp_path, f'extern "C" {head} solve{USUAL} {{}}\n').returns_status is status


@pytest.mark.parametrize("head", ["float", "bool", "float*", "unsigned int", "long", "Result", "std::vector<int>"])
def test_another_return_type_is_refused(tmp_path: Path, head: str) -> None:
    message = refusal(tmp_path, f'extern "C" {head} solve{USUAL} {{}}\n')
    assert "k.cu:1: solve returns `" in message
    assert "void, or int or cudaError_t as a status" in message


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (f'extern "C" __global__ void solve{USUAL} {{}}', "k.cu:1: solve is device code; the entry point is a host function"),
        (f"__global__ void solve{USUAL} {{}}", "solve is device code"),
        (f'extern "C" static void solve{USUAL} {{}}', "solve is static"),
        ("template <class T>\nvoid solve(T* a) {}", "k.cu:2: solve is a template"),
        ('#define DEF(T) extern "C" void solve(const T* a, T* b) {}\nDEF(float)\n', "k.cu:1: solve is written by a macro"),
        (f"namespace {{ {SOLVE} {{}} }}", "inside a namespace or a class only"),
        (f"struct S {{ void solve{USUAL} {{}} }};", "inside a namespace or a class only"),
        (f"{SOLVE};\nint main() {{ float* h_val; solve(h_val, h_val, 1); }}", "k.cu:1: solve is declared but not defined here"),
        ("__global__ void k() {}", 'k.cu has no entry point: define `extern "C" void solve(...)`'),
        (f"#define solve other\n{SOLVE} {{}}", "has no entry point"),
        ('extern "C" void solve(const float* A, float* B, int N {}\n', "its parentheses do not close"),
        ('extern "C" void solve(float* A, int A) {}', "two parameters called `A`"),
        ("", "has no entry point"),
    ],
)
def test_a_file_without_a_callable_entry_says_what_to_write(tmp_path: Path, source: str, reason: str) -> None:
    assert reason in refusal(tmp_path, source)


def test_a_missing_extern_c_is_told_with_the_very_words_to_add(tmp_path: Path) -> None:
    """CMP-29: such a file is collected and fails with the hint."""
    message = refusal(tmp_path, "#include <x.h>\n\nvoid solve(const float* input, float* output, int N) {}\n")
    assert "k.cu:3: solve has no C linkage" in message
    assert 'write `extern "C"` before it' in message
    assert has_entry(tmp_path / "k.cu")


def test_a_declaration_of_another_overload_gives_no_c_linkage(tmp_path: Path) -> None:
    assert "no C linkage" in refusal(tmp_path, f'extern "C" void solve(const float*, float*, long);\nvoid solve{USUAL} {{}}\n')


def test_a_missing_brace_is_left_to_the_compiler(tmp_path: Path) -> None:
    """A broken body must not make the file vanish from a folder walk."""
    for source in (f"{SOLVE} {{ if (A) {{ \n", f"__global__ void k(int n) {{ if (n) {{ \n}}\n{SOLVE} {{}}\n"):
        assert shown(spec_of(tmp_path, source)) == USUAL_PARAMETERS
        assert has_entry(tmp_path / "k.cu")


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (b"// caf\xe9\n" + SOLVE.encode() + b" {}\n", 2),
        (b"/* \xc4\xe3\xba\xc3 */\n// \xb8\x5c\n\n" + SOLVE.encode() + b" {}\n", 4),
        (b"\xef\xbb\xbf// BOM\r\n\r\n" + SOLVE.replace(", ", ",\r\n").encode() + b" {\r\n}\r\n", 3),
        (b"\xef\xbb\xbf" + SOLVE.encode() + b" {}\n", 1),
        ("// ядро 行列\n".encode() + SOLVE.encode() + b" {}\n", 2),
    ],
)
def test_bytes_of_any_encoding_and_line_ending_are_read(tmp_path: Path, source: bytes, line: int) -> None:
    """Row 17, CMP-15, CMP-17. The 0x5C that ends a GBK comment splices the next (empty) line, as it does for the compiler."""
    spec = spec_of(tmp_path, source)
    assert shown(spec) == USUAL_PARAMETERS
    assert spec.line == line


def test_utf16_is_named(tmp_path: Path) -> None:
    assert "UTF-16" in refusal(tmp_path, f"{SOLVE} {{}}".encode("utf-16"))


def test_lines_are_those_of_the_file_after_preprocessing(tmp_path: Path) -> None:
    source = "#define LONG 1, \\\n  2, \\\n  3\n/* a\n b */ #define X \\\n 1\n#if 0\n\n#endif\nint y = LONG;\n"
    spec = spec_of(tmp_path, source + 'extern "C" void solve(\n  float* A, // x\n  /* y\n */ int N)\n{}\n')
    assert spec.line == 11
    assert [p.line for p in spec.parameters] == [12, 14]


@pytest.mark.parametrize(
    ("include", "backend"),
    [
        ("#include <cutlass/gemm/device/gemm.h>", "cutlass"),
        ('#  include "cute/tensor.hpp"', "cutlass"),
        ("#include <cuda_fp16.h>", "cuda"),
        ("// #include <cutlass/gemm.h>", "cuda"),
        ("/*\n#include <cutlass/gemm.h>\n*/", "cuda"),
        ("#if 0\n#include <cutlass/gemm.h>\n#endif", "cuda"),
        ('const char* s = "#include <cutlass/x.h>";', "cuda"),
        ('#include "mycutlass/x.h"', "cuda"),
    ],
)
def test_a_live_include_of_cutlass_or_cute_makes_the_backend(tmp_path: Path, include: str, backend: str) -> None:
    assert spec_of(tmp_path, f"{include}\n{SOLVE} {{}}\n").backend == backend


@pytest.mark.parametrize(
    "source",
    [
        "__global__ void k(int n) {}\n",
        "// void solve(int a) {}\n",
        f"{SOLVE};\nint main() {{ solve(nullptr, nullptr, 1); return 0; }}\n",
        "void Solver::solve(int a) {}\n",
        "namespace lu { void solve(float* a) {} }\n",
        "auto solve = [](int a) {};\n",
        "struct S { void solve(int a) {} };\n",
        'const char* s = "void solve(int a) {";\n',
        "__global__ void solve(float* a) {}\n",
        "",
    ],
)
def test_a_helper_file_has_no_entry(tmp_path: Path, source: str) -> None:
    """SIG-25: files that only declare or call solve() are no kernel files."""
    (tmp_path / "helper.cu").write_text(source)
    assert not has_entry(tmp_path / "helper.cu")


def test_a_folder_called_like_a_kernel_has_no_entry(tmp_path: Path) -> None:
    (tmp_path / "d.cu").mkdir()
    assert not has_entry(tmp_path / "d.cu")


def test_deep_nesting_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    conditions = "#ifdef X\n" * 5000 + "#endif\n" * 5000
    macros = "".join(f"#define M{i} M{i + 1}\n" for i in range(5000)) + "int x = M0;\n"
    started = time.perf_counter()
    for source in (conditions, macros):
        assert "nested too deeply" in refusal(tmp_path, source + f"{SOLVE} {{}}\n")
        assert has_entry(tmp_path / "k.cu")
    assert time.perf_counter() - started < 10


def test_macros_that_multiply_cost_no_time(tmp_path: Path) -> None:
    doubling = "".join(f"#define M{i} M{i + 1} M{i + 1}\n" for i in range(200))
    started = time.perf_counter()
    assert shown(spec_of(tmp_path, doubling + f"int x = M0;\n{SOLVE} {{}}\n")) == USUAL_PARAMETERS
    assert time.perf_counter() - started < 2


PIECES = (
    'extern "C"', "void", "solve", "(", ")", "{", "}", "const", "float", "*", "A", ",", "int", "N", "=", "1", "<", ">", "[", "]",
    "::", ";", "\n", "\n#if 0\n", "\n#ifdef X\n", "\n#else\n", "\n#endif\n", "\n#define A ", "\n#define solve(x) ", "typedef",
    "using T =", "T", "/*", "*/", "//", '"', "'", "\\\n", "template <class T>", "namespace n {", "// kopt: tune A = 1\n",
    "&", "...", "\x00", "é", 'R"(', ')"',
)  # fmt: skip


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_source_is_a_signature_or_one_error(tmp_path: Path, pieces: list[str]) -> None:
    source = " ".join(pieces)
    try:
        spec = spec_of(tmp_path, source)
    except KernelError as error:
        assert_one_line(str(error))
        return
    assert has_entry(tmp_path / "k.cu")
    assert all(p.name for p in spec.parameters)


def assert_one_line(message: str) -> None:
    assert "\n" not in message


# The starters of the public reports, as their users have them (SIG-01, 03, 05, 07, 09, 11, 13, 17, 27).
STARTERS: dict[str, Any] = {
    "SIG-01": ("const float* input, float* output, float lo, float hi, int N", "lo: float32", 2),
    "SIG-03": ("const half* A, const half* B, half* C, int M, int N, int K, float alpha, float beta", "C: float16*", 2),
    "SIG-05": ("float* Q, float* cos, float* sin, float* output, int M, int D", "cos: float32*", 1),
    "SIG-07": ("const float* A, const float* B, float* C, int N", "N: int32", 3),
    "SIG-09": ("const int* input, int* output, int N, int window_size", "window_size: int32", 3),
    "SIG-11": ("const int* token_ids, const float* table, float* output, int B, int T", "token_ids: const int32*", 0),
    "SIG-13": ("const float* A, int N, float* out", "out: float32*", 2),
    "SIG-17": ("const unsigned int* input, unsigned int* output, int N", "output: uint32*", 1),
    "SIG-27": (
        "const float *A, float const * B, const float* __restrict__ C, float D[], unsigned *x, // n\n int n",
        "x: uint32*",
        4,
    ),
}


@pytest.mark.parametrize("report", STARTERS)
def test_a_public_starter_is_parsed(tmp_path: Path, report: str) -> None:
    written, right, index = STARTERS[report]
    spec = spec_of(tmp_path, f'#include <cuda_runtime.h>\n\n// device pointers\nextern "C" void solve({written}) {{\n}}\n')
    assert shown(spec)[index] == right
    assert len(spec.parameters) == written.count(",") + 1


def test_a_missing_semicolon_leaves_the_entry_readable_and_the_error_to_the_compiler(tmp_path: Path) -> None:
    path = tmp_path / "broken.cu"
    path.write_text('int helper(int);\nextern "C" void solve(const float* x, float* y, int n) { k<<<1, 256>>>(x, y, n) }\n')
    assert has_entry(path)
    read = load(path)
    assert [(p.name, p.kind, p.const) for p in read.parameters] == [
        ("x", "tensor", True), ("y", "tensor", False), ("n", "scalar", False),
    ]  # fmt: skip
    assert read.line == 2


def test_a_call_of_a_function_called_solve_is_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "main.cu"
    path.write_text("void solve(int);\nint main() { if (solve(1)) { return 1 } }\n")
    assert not has_entry(path)
