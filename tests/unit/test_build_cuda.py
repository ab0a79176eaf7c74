from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pytest_kernelopt.core.build import Artifact, Cache, build
from pytest_kernelopt.core.build.cuda import split_flags
from pytest_kernelopt.core.build.sources import ascii_name, live_code, read
from pytest_kernelopt.core.errors import BuildError, KernelError, Unavailable
from pytest_kernelopt.core.spec.model import Directives, KernelSpec, Parameter
from pytest_kernelopt.core.toolchain import Nvcc, Target, Toolchain

TOOLS = Toolchain.find()
PARAMETERS = (
    Parameter("x", "tensor", "float32", const=True),
    Parameter("y", "tensor", "float32"),
    Parameter("n", "scalar", "int32"),
)
ADD = """\
#include <cuda_runtime.h>
__global__ void add(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}
extern "C" void solve(const float* x, float* y, int n) { add<<<(n + 255) / 256, 256>>>(x, y, n); }
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


def kernel(path: Path, source: str | bytes = ADD, **fields: object) -> KernelSpec:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    return KernelSpec(**{"path": path, "backend": "cuda", "entry": "solve", "line": 6, "parameters": PARAMETERS} | fields)  # type: ignore[arg-type]


def made(spec: KernelSpec, cache: Cache, arch: str = "sm_90a", **options: object) -> Artifact:
    return build(spec, Target(arch), TOOLS, cache, **options)  # type: ignore[arg-type]


def fails(spec: KernelSpec, cache: Cache, arch: str = "sm_90a", **options: object) -> BuildError:
    with pytest.raises(BuildError) as error:
        made(spec, cache, arch, **options)
    return error.value


def fake(tmp_path: Path, script: str, version: str = "12.4.131", host: str = "g++ 15.1.0") -> Toolchain:
    """A tool chain whose nvcc is this shell script."""
    path = tmp_path / "fake" / "nvcc"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Toolchain(nvcc=Nvcc(path, version), host_compiler=host)


def test_a_kernel_is_built_for_its_arch_and_what_it_takes_is_recorded(tmp_path: Path, cache: Cache) -> None:
    artifact = made(kernel(tmp_path / "add.cu"), cache)
    assert artifact.path is not None
    record = artifact.record
    assert (record.backend, record.arch, record.cached) == ("cuda", "sm_90a", False)
    assert record.compiler.startswith("nvcc 1")
    assert "g++" in record.compiler
    assert record.binary_bytes == artifact.path.stat().st_size
    assert record.seconds > 0
    (one,) = record.kernels
    assert (one.name, one.arch, one.spill_store_bytes, one.static_shared_bytes) == ("add", "sm_90a", 0, 0)
    assert one.registers is not None
    assert one.registers >= 8
    assert hasattr(ctypes.CDLL(str(artifact.path)), "solve")


def test_nothing_is_written_beside_the_users_file(tmp_path: Path, cache: Cache) -> None:
    made(kernel(tmp_path / "alone" / "k.cu", ADD + "// alone\n"), cache)
    fails(kernel(tmp_path / "alone" / "k.cu", "broken"), cache)
    assert [p.name for p in (tmp_path / "alone").iterdir()] == ["k.cu"]


def test_host_debug_information_leaves_the_device_code_as_it_is(tmp_path: Path, cache: Cache) -> None:
    artifact = made(kernel(tmp_path / "add.cu"), cache)
    assert TOOLS.cuobjdump is not None
    assert TOOLS.nvcc is not None
    plain = tmp_path / "plain.so"
    command = [TOOLS.nvcc.path, *Target().gencode, "-O3", "-std=c++17", "-lineinfo", "-shared", "-Xcompiler", "-fPIC"]
    subprocess.run([*command, tmp_path / "add.cu", "-o", plain], check=True)

    def sass(library: Path | None) -> str:
        text = subprocess.run([str(TOOLS.cuobjdump), "-sass", str(library)], capture_output=True, text=True, check=True).stdout
        return "\n".join(re.findall(r"/\*[0-9a-f]{4,}\*/.*", text))

    assert "FADD" in sass(plain)
    assert sass(artifact.path) == sass(plain)


@pytest.mark.parametrize("folder", ["my kernels (cub), v2", "проект", "a'b\"c$d"])
def test_any_folder_and_file_name_builds_and_errors_show_it(
    tmp_path: Path, cache: Cache, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    place = tmp_path / folder
    place.mkdir()
    (place / "scale factor.cuh").write_text("#define FACTOR 2.0f\n")
    source = '#include "scale factor.cuh"\n' + ADD.replace("x[i];", "FACTOR * x[i];") + f"// {folder}\n"
    assert made(kernel(place / "ядро 1.cu", source), cache).path
    error = fails(kernel(place / "ядро 1.cu", source.replace("y[i]", "z[i]")), cache)
    assert str(error).startswith('ядро 1.cu(5): error: identifier "z" is undefined')
    (place / "scale factor.cuh").write_text("#define FACTOR 2.0f\nint f() { return nothing; }\n")
    assert f"{place}/scale factor.cuh(2): error" in fails(kernel(place / "ядро 1.cu", source), cache).log


def test_the_cache_itself_may_lie_in_a_folder_with_spaces_and_other_letters(tmp_path: Path) -> None:
    assert made(kernel(tmp_path / "k.cu"), Cache(tmp_path / "кэш (1)")).path


@pytest.mark.parametrize(
    "content",
    [b"\xef\xbb\xbf" + ADD.encode(), ADD.replace("\n", "\r\n").encode(), ADD.encode() + "// 归一化核\n".encode("gbk")],
    ids=["BOM", "CRLF", "GBK comment"],
)
def test_bytes_that_are_no_plain_utf8_compile(tmp_path: Path, cache: Cache, content: bytes) -> None:
    assert made(kernel(tmp_path / "k.cu", content), cache).record.kernels[0].name == "add"


def test_a_changed_source_or_header_or_flag_is_built_again_and_an_unchanged_one_is_not(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "inner.h").write_text("#define FACTOR 3.0f\n")
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "outer.h").write_text('#include "../inner.h"\n')
    spec = kernel(tmp_path / "k.cu", '#include "common/outer.h"\n' + ADD.replace("x[i];", "FACTOR * x[i];"))
    first = made(spec, cache).record
    assert made(spec, cache).record.cached
    (tmp_path / "inner.h").write_text("#define FACTOR 5.0f\n")  # included by an included header
    second = made(spec, cache).record
    assert (second.cached, second.key != first.key) == (False, True)
    assert not made(spec, cache, flags=["--use_fast_math"]).record.cached
    assert not made(spec, cache, arch="sm_80").record.cached
    assert made(spec, cache).record.cached


def test_flags_of_the_file_and_of_the_command_line_reach_the_compiler(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "extra.h").write_text("#define THREE 3\n")
    source = f"#include <extra.h>\nstatic_assert(FOUR - THREE == 1);\n{ADD}"
    spec = kernel(tmp_path / "k.cu", source, directives=Directives(flags=("-DFOUR=4",)))
    record = made(spec, cache, flags=["-I", str(tmp_path / "deep")]).record
    assert {"-DFOUR=4", "-I"} < set(record.flags)
    (tmp_path / "deep" / "extra.h").write_text("#define THREE 2\n")
    assert "static assertion failed" in str(fails(spec, cache, flags=["-I", str(tmp_path / "deep")]))


@pytest.mark.parametrize("flag", ["-arch=native", "-gencode=arch=compute_80,code=sm_80", "-arch", "--gpu-architecture=sm_80"])
def test_the_arch_is_not_chosen_by_a_flag(tmp_path: Path, cache: Cache, flag: str) -> None:
    with pytest.raises(KernelError, match="--kopt-arch"):
        made(kernel(tmp_path / "k.cu"), cache, flags=[flag])


def test_flags_on_the_command_line_are_split_as_a_shell_does() -> None:
    assert split_flags("-O2 -DNAME='a b'") == ("-O2", "-DNAME=a b")
    with pytest.raises(KernelError, match="No closing quotation"):
        split_flags("-D'")


def test_a_helper_named_as_one_of_libc_is_the_one_that_is_called(tmp_path: Path, cache: Cache) -> None:
    source = 'extern "C" int hcreate(unsigned long) { return 77; }\nextern "C" int solve(int n) { return hcreate(n); }\n'
    spec = kernel(tmp_path / "k.cu", source, parameters=(Parameter("n", "scalar", "int32"),), returns_status=True)
    library = made(spec, cache).path
    assert ctypes.CDLL(str(library)).solve(5) == 77


def test_a_wrong_line_is_quoted_as_the_compiler_wrote_it_with_the_whole_log_kept(tmp_path: Path, cache: Cache) -> None:
    error = fails(kernel(tmp_path / "k.cu", ADD.replace("y[i] +=", "y[j] =")), cache)
    assert str(error) == 'k.cu(4): error: identifier "j" is undefined'
    assert "1 error detected" in error.log


def test_a_warp_group_instruction_on_plain_sm_90_is_answered_with_the_arch_it_needs(tmp_path: Path, cache: Cache) -> None:
    spec = kernel(tmp_path / "k.cu", ADD.replace("if (i < n)", 'asm volatile("wgmma.fence.sync.aligned;"); if (i < n)'))
    error = fails(spec, cache, arch="sm_90")
    assert str(error) == "k.cu: Instruction 'wgmma.fence' is not supported on sm_90; build for sm_90a: --kopt-arch sm_90a"
    assert made(spec, cache, arch="sm_90a").path


def test_a_missing_header_is_named(tmp_path: Path, cache: Cache) -> None:
    error = fails(kernel(tmp_path / "k.cu", f'#include "helpers/warp.cuh"\n{ADD}'), cache)
    assert str(error) == "k.cu:1:10: fatal error: helpers/warp.cuh: No such file or directory"


def test_missing_cutlass_headers_are_answered_with_the_package(tmp_path: Path, cache: Cache) -> None:
    spec = kernel(tmp_path / "k.cu", f'#include "cutlass/cutlass.h"\n{ADD}', backend="cutlass")
    with pytest.raises(BuildError, match="pip install nvidia-cutlass"):
        build(spec, Target(), Toolchain(nvcc=TOOLS.nvcc), cache)


@pytest.mark.parametrize(
    ("symbol", "hint"),
    [("helper", "declared and never defined"), ("cublasSetStream", "--kopt-flags=-lcublas"), ("cuLaunch", "-lcuda")],
)
def test_an_undefined_symbol_is_found_at_the_build_and_not_at_the_load(
    tmp_path: Path, cache: Cache, symbol: str, hint: str
) -> None:
    spec = kernel(tmp_path / "k.cu", f'extern "C" int {symbol}();\n{ADD.replace("{ add", f"{{ {symbol}(); add")}')
    error = fails(spec, cache)
    assert str(error).startswith(f"k.cu: undefined symbol {symbol} (")
    assert hint in str(error)


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        (
            "echo \"nvcc fatal   : Unsupported gpu architecture 'compute_120a'\" >&2; exit 1",
            "nvcc 12.4.131 is too old for sm_120a, which needs CUDA 12.8 or newer: use a newer toolkit (--kopt-nvcc), or",
        ),
        (
            "echo \"nvcc fatal   : Unsupported gpu architecture 'compute_70'\" >&2; exit 1",
            "nvcc 12.4.131 no longer builds for sm_70",
        ),
        (
            "for i in 1 2 3 4; do echo '/usr/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! "
            "gcc versions later than 13 are not supported! Use the nvcc flag -allow-unsupported-compiler' >&2; done; exit 1",
            "host compiler g++ 15.1.0 is too new for nvcc 12.4.131 (up to 13 is supported): name an older one with NVCC_CCBIN",
        ),
        (
            "echo \"ptxas fatal   : Unsupported .version 9.5; current version is '9.0'\" >&2; exit 255",
            "the parts of nvcc 12.4.131 are of different releases (PTX 9.5 against 9.0)",
        ),
        (
            "echo \"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\" >&2; exit 9",
            "k.cu: cicc of nvcc 12.4.131 died of signal 9, most likely out of memory",
        ),
        (
            "echo \"nvcc error   : 'cudafe++' died due to signal 11 (Invalid memory reference)\" >&2; exit 139",
            "k.cu: cudafe++ of nvcc 12.4.131 died of signal 11, the compiler itself crashed",
        ),
        ("kill -SEGV $$", "k.cu: nvcc 12.4.131 was killed by signal 11"),
        ("exit 3", "k.cu: nvcc 12.4.131 failed with exit code 3"),
        ("exit 0", "k.cu: nvcc 12.4.131 failed with exit code 0"),
        (
            "echo \"nvcc warning : Cannot find valid GPU for '-arch=native', default arch is used\" >&2; "
            'while [ "$1" != -o ]; do shift; done; echo library > "$2"',
            "-arch=native found no GPU and would build for a default arch",
        ),
        (
            "echo '/usr/bin/ld: cannot find -lfoo: No such file or directory' >&2; exit 1",
            "k.cu: the linker did not find library foo",
        ),
        ("echo 'k.cu(7): catastrophic error: out of ideas' >&2; exit 1", "k.cu(7): catastrophic error: out of ideas"),
    ],
)
def test_a_known_failure_is_condensed_to_its_cause_and_remedy(tmp_path: Path, cache: Cache, script: str, cause: str) -> None:
    with pytest.raises(BuildError) as error:
        build(kernel(tmp_path / "k.cu"), Target("sm_120a"), fake(tmp_path, script), cache)
    assert str(error.value).startswith(cause)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("fatal error: error writing to /tmp/x.s: No space left on device", "no space left on the disk"),
        ("sh: 1: gcc: not found", "needs a host C\\+\\+ compiler: install g\\+\\+"),
    ],
)
def test_what_the_machine_lacks_is_not_held_against_the_kernel(tmp_path: Path, cache: Cache, message: str, reason: str) -> None:
    with pytest.raises(Unavailable, match=reason):
        build(kernel(tmp_path / "k.cu"), Target(), fake(tmp_path, f"echo '{message}' >&2; exit 1"), cache)


def test_a_build_that_failed_is_tried_again(tmp_path: Path, cache: Cache) -> None:
    spec = kernel(tmp_path / "k.cu", ADD + "// tried again\n")
    with pytest.raises(Unavailable):
        build(spec, Target(), Toolchain(), cache)
    script = (
        f'if [ -e {tmp_path}/mended ]; then while [ "$1" != -o ]; do shift; done; cp {tmp_path}/good.so "$2"; else exit 1; fi'
    )
    good = made(spec, cache).path
    assert good is not None
    (tmp_path / "good.so").write_bytes(good.read_bytes())
    tools = fake(tmp_path, script)
    with pytest.raises(BuildError):
        build(spec, Target(), tools, cache)
    (tmp_path / "mended").touch()
    assert build(spec, Target(), tools, cache).path


def processes_that_mention(text: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (entry / "cmdline").read_bytes() and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def gone(text: str) -> bool:
    deadline = time.monotonic() + 5
    while processes_that_mention(text) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes_that_mention(text)


def test_a_build_that_takes_too_long_is_killed_with_all_that_it_started(tmp_path: Path, cache: Cache) -> None:
    tools = fake(tmp_path, "echo working on it; sleep 4321 & sleep 4321")
    with pytest.raises(BuildError, match=r"k\.cu: nvcc 12\.4\.131 was killed after 0\.5 s") as error:
        build(kernel(tmp_path / "k.cu"), Target(), tools, cache, timeout=0.5)
    assert error.value.log == "working on it\n"
    assert gone("sleep\x004321")


def test_ctrl_c_during_a_build_leaves_no_compiler_behind(tmp_path: Path, cache: Cache) -> None:
    tools = fake(tmp_path, "sleep 4322 & sleep 4322")
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        build(kernel(tmp_path / "k.cu"), Target(), tools, cache)
    assert gone("sleep\x004322")


def test_a_killed_pytest_leaves_no_compiler_behind(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from pytest_kernelopt.core.build.cuda import run\n"
        "command = ['sh', '-c', 'sleep 4323 & sleep 4323']\n"
        f"run(command, cwd=Path('/'), environment={{}}, log=Path({str(tmp_path / 'log')!r}), timeout=60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        deadline = time.monotonic() + 5
        while len(processes_that_mention("sleep\x004323")) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
    assert gone("sleep\x004323")


def test_headers_are_followed_once_even_when_they_include_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\n')
    (tmp_path / "b.h").write_text('#include "a.h"\n#  include <vector>\n#include "absent.h"\n')
    (tmp_path / "k.cu").write_text('#include "a.h"\n')
    source = read(tmp_path / "k.cu")
    assert [path.name for path, _ in source.headers] == ["a.h", "b.h"]
    assert source.includes(["vec"])
    assert not source.includes(["cute/"])


def test_comments_and_switched_off_code_are_not_live() -> None:
    text = 'a // b\n/* c\n*/ d "// e"\n#if 0\nf\n#else\ng\n#endif\n#ifdef X\n#if 0\n#if 1\nh\n#endif\n#endif\ni\n#endif\n'
    assert live_code(text).split() == ["a", "d", '"//', 'e"', "g", "i"]
    assert live_code(text).count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("name", "plain"),
    [("softmax.cu", "softmax.cu"), ("ядро 1.cu", "_____1.cu"), ("-rf.cu", "k_-rf.cu"), (".k-2.cu", "k_.k-2.cu")],
)
def test_the_compilers_copy_has_a_plain_name(name: str, plain: str) -> None:
    assert ascii_name(Path(name)) == plain
