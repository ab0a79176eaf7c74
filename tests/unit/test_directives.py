"""``kopt:`` lines in comments: constants to tune, and flags from an allow-list."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.spec import load
from pytest_kernelopt.core.spec.directives import check_flags
from pytest_kernelopt.core.spec.model import Directives

SOLVE = 'extern "C" void solve(float* x) {}\n'


def cuda(folder: Path, source: str) -> Directives:
    (folder / "k.cu").write_text(source + SOLVE)
    return load(folder / "k.cu").directives


def triton(folder: Path, source: str) -> Directives:
    (folder / "k_triton.py").write_text(source + "def run_kernel(x): pass\n")
    return load(folder / "k_triton.py").directives


def test_tune_and_flags_of_a_cuda_file(tmp_path: Path) -> None:
    source = "// kopt: tune BLOCK = 64, 128, 256\n#define BLOCK 128\n//kopt:flags = --use_fast_math -DX=2\n"
    source += "#define T float // kopt: tune T = float, double\n"
    found = cuda(tmp_path, source)
    assert found.tune == (("BLOCK", ("64", "128", "256")), ("T", ("float", "double")))
    assert found.flags == ("--use_fast_math", "-DX=2")


def test_a_block_comment_has_one_directive_a_line(tmp_path: Path) -> None:
    found = cuda(
        tmp_path, "/* about it\n * kopt: tune A = 1, 2\n * kopt: flags = -O3 */\n#define A 1\n/* kopt: flags = --ftz=true */\n"
    )
    assert (found.tune, found.flags) == ((("A", ("1", "2")),), ("-O3", "--ftz=true"))


def test_directives_of_a_triton_file(tmp_path: Path) -> None:
    found = triton(
        tmp_path,
        "BLOCK = 1024  # kopt: tune BLOCK = 256, 1024\n# kopt: tune W = 4, 8\nW: tl.constexpr = 4\n",
    )
    assert found.tune == (("BLOCK", ("256", "1024")), ("W", ("4", "8")))


def test_only_live_comments_count(tmp_path: Path) -> None:
    source = 'const char* s = "// kopt: flags = -O0";\n#if 0\n// kopt: flags = -O1\n#endif\n'
    source += 'const char* r = R"(\n// kopt: flags = -O2\n)";\n'
    assert cuda(tmp_path, source + "// see kopt: flags = -O3\n") == Directives()
    assert triton(tmp_path, 's = "# kopt: flags = -O0"\nt = """\n# kopt: tune X = 1\n"""\n') == Directives()


def test_a_constant_under_an_ifndef_can_be_tuned(tmp_path: Path) -> None:
    assert cuda(tmp_path, "#ifndef N\n#define N 4\n#endif\n// kopt: tune N = 4, 8\n").tune == (("N", ("4", "8")),)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("tune BLOCK = 64", "k.cu:2: `kopt: tune BLOCK` needs a `#define BLOCK ...` in this file"),
        ("tune F = 64", "needs a `#define F ...`"),
        ("tune N = ", "there is an empty number or name"),
        ("tune N = 1,,2", "there is an empty number or name"),
        ("tune N = 1, system(2)", "`system(2)` is no number or name"),
        ("tune N = 1, 1", "names a value twice"),
        ("tune = 1", "k.cu:2: unknown directive `kopt: tune = 1`"),
        ("turbo on", "unknown directive `kopt: turbo on`"),
        ("", "unknown directive"),
        ("flags =", "names no flag"),
        ("flags = 'x", "cannot be split into words"),
        ("flags = -I/etc", "the flag `-I/etc` is not allowed in a kernel file"),
    ],
)
def test_a_wrong_directive_is_an_error_with_its_line(tmp_path: Path, line: str, reason: str) -> None:
    with pytest.raises(KernelError) as error:
        cuda(tmp_path, f"#define N 1\n// kopt: {line}\n#define F(x) x\n")
    assert reason in str(error.value)


def test_two_lines_for_one_constant_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"k\.cu:3: `N` is tuned twice"):
        cuda(tmp_path, "#define N 1\n// kopt: tune N = 1\n// kopt: tune N = 2\n")


def test_triton_has_no_flags_and_needs_the_constant(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"k_triton\.py:1: `kopt: flags` is for nvcc"):
        triton(tmp_path, "# kopt: flags = -O3\n")
    with pytest.raises(KernelError, match=r"needs a module-level constant `BLOCK = \.\.\.`"):
        triton(tmp_path, "# kopt: tune BLOCK = 1\ndef f(BLOCK=1): pass\n")


ALLOWED = [
    "--use_fast_math",
    "-use_fast_math",
    "-fmad=false",
    "--fmad=true",
    "--ftz=true",
    "--prec-div=false",
    "--prec-sqrt=false",
    "-maxrregcount=64",
    "--maxrregcount=128",
    "-O0",
    "-O3",
    "--extra-device-vectorization",
    "-DNAME",
    "-DNAME=12.5f",
    "-DNAME=",
    "-std=c++17",
    "--std=c++20",
    "--expt-relaxed-constexpr",
    "--extended-lambda",
    "--expt-extended-lambda",
    "-Xptxas=-O3",
    "-Xptxas=-dlcm=ca,-v",
    "--ptxas-options=--allow-expensive-optimizations=true",
]


@pytest.mark.parametrize("flag", ALLOWED)
def test_an_optimisation_flag_is_allowed(flag: str) -> None:
    assert check_flags(flag, "k.cu:1") == [flag]


def test_a_flag_and_its_value_may_be_two_words() -> None:
    given = "-Xptxas -dlcm=cg -maxrregcount 64 -D N=3 -std c++17"
    assert check_flags(given, "k.cu:1") == ["-Xptxas=-dlcm=cg", "-maxrregcount=64", "-DN=3", "-std=c++17"]


REFUSED = [
    "-I/etc",
    "-I .",
    "-include /etc/passwd",
    "--pre-include=x.h",
    "-isystem /",
    "-L/tmp",
    "-lm",
    "-l m",
    "--library=m",
    "-ccbin /tmp/evil",
    "--compiler-bindir=/tmp",
    "-Xcompiler -fplugin=/tmp/x.so",
    "-Xcompiler=-B/tmp",
    "--compiler-options -B/tmp",
    "-Xlinker -rpath",
    "-Xnvlink -v",
    "-Xfatbin x",
    "-o /tmp/x",
    "-o=x",
    "--run",
    "-run",
    "--run-args x",
    "@file",
    "-x cu",
    "--options-file f",
    "-optf f",
    "-dc",
    "-E",
    "--keep-dir=/tmp",
    "-keep",
    "--dryrun",
    "-arch=sm_90",
    "-gencode=arch=compute_90,code=sm_90",
    "--default-stream=per-thread",
    "-std=c++11",
    "-O4",
    "-DX=$(id)",
    "-DX='a b'",
    "-DX;id",
    "-D",
    "-D X;id",
    "-Xptxas",
    "-Xptxas -o,/tmp/x",
    "-Xptxas=-O3,--options-file=f",
    "-Xptxas=-dlcm=ca/../x",
    "-maxrregcount=64;id",
    "other.cu",
    "/tmp/lib.a",
    "--use_fast_math -include x",
    "--fdevice-time-trace=/tmp/x",
    "-time=/tmp/x",
]


@pytest.mark.parametrize("flags", REFUSED)
def test_a_flag_that_runs_code_or_names_a_file_is_refused(flags: str) -> None:
    with pytest.raises(KernelError, match=r"^k\.cu:1: the flag `.*` is not allowed in a kernel file"):
        check_flags(flags, "k.cu:1")
