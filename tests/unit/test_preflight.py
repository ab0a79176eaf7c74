"""The environment report, over real compilers where there are any and stand-ins for what must fail."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_driver import build

from pytest_kernelopt.core import environment, nvml, preflight
from pytest_kernelopt.core.errors import Unavailable
from pytest_kernelopt.core.preflight import machine, tools
from pytest_kernelopt.core.preflight.context import Context
from pytest_kernelopt.core.records import Check, Gpu, Preflight
from pytest_kernelopt.core.spec.model import KernelSpec, ReferenceSource
from pytest_kernelopt.core.toolchain import Cutlass, Nvcc, Target, Toolchain, find_nvcc

GPU = Gpu(
    index=0,
    name="NVIDIA H200",
    uuid="GPU-11111111-1111-1111-1111-111111111111",
    capability=(9, 0),
    driver="580.159.04",
    memory_bytes=141 << 30,
    l2_bytes=60 << 20,
    sm_count=132,
)
BROKEN = "#!/bin/sh\necho 'nvcc fatal   : no licence to compile' >&2\nexit 3\n"


def spec(name: str, *, reference: bool = True) -> KernelSpec:
    path = Path("kernels", name)
    backend = "triton" if name.endswith(".py") else "cuda"
    return KernelSpec(path, backend, "solve", 1, (), reference=ReferenceSource(path) if reference else None)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "scratch").mkdir()
    return Context(
        specs=[spec("a.cu")],
        backends=frozenset(("cuda",)),
        toolchain=Toolchain(),
        target=Target("sm_90a"),
        gpu=None,
        why_no_gpu="no NVIDIA driver: libcuda.so.1 is not found",
        torch=environment.torch(),
        environ=os.environ,
        cache=tmp_path / "cache",
        folder=tmp_path / "scratch",
    )


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def only(report: Preflight, name: str) -> Check:
    return next(check for check in report.checks if check.name == name)


def needs_nvcc() -> Nvcc:
    try:
        return find_nvcc()
    except Unavailable as error:
        pytest.skip(str(error))


def test_a_machine_without_a_gpu_is_not_ready_and_every_problem_has_a_remedy(tmp_path: Path) -> None:
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PATH": os.environ["PATH"]}
    report = preflight.run([spec("a_triton.py")], cache=tmp_path, environ=environ)
    assert not report.ready
    assert only(report, "GPU").status == "missing"
    assert only(report, "torch").status == "ok"
    assert only(report, "Triton").status == "ok"
    assert [c.name for c in report.checks if c.status == "missing" and not c.remedy] == []
    # a Triton kernel needs neither of these
    assert not only(report, "nvcc").required
    assert not only(report, "CUTLASS headers").required
    assert preflight.render(report).splitlines()[-1] == "not ready: GPU, driver missing"


def test_with_nothing_collected_all_backends_are_asked_for(tmp_path: Path) -> None:
    toolchain = Toolchain(nvcc_missing="nvcc was not found (tried PATH)")
    report = preflight.run([], toolchain=toolchain, cache=tmp_path)
    assert only(report, "nvcc").required
    assert only(report, "nvcc").detail == "nvcc was not found (tried PATH)"
    assert only(report, "CUTLASS headers").required
    assert only(report, "references").detail == "no kernel was collected"


def test_nvcc_is_judged_by_compiling(context: Context) -> None:
    good = replace(context, toolchain=Toolchain(nvcc=needs_nvcc()))
    assert tools.nvcc(good).status == "ok"
    assert good.program is not None


def test_an_nvcc_that_does_not_know_the_gpu_is_named(context: Context) -> None:
    found = tools.nvcc(replace(context, toolchain=Toolchain(nvcc=needs_nvcc()), target=Target("sm_52")))
    assert found.status == "missing"
    assert "does not compile for sm_52: it knows sm_75" in found.detail


def test_an_nvcc_that_fails_is_missing_with_its_own_words(context: Context, tmp_path: Path) -> None:
    broken = Nvcc(script(tmp_path / "nvcc", BROKEN), "13.0.88")
    found = tools.nvcc(replace(context, toolchain=Toolchain(nvcc=broken)))
    assert (found.status, found.required) == ("missing", True)
    assert found.detail.endswith("does not compile: nvcc fatal   : no licence to compile")


def test_the_host_compiler_is_judged_by_compiling(context: Context, tmp_path: Path) -> None:
    if shutil.which("g++"):
        assert tools.host_compiler(context).status == "ok"
    absent = replace(context, environ={**os.environ, "NVCC_CCBIN": "g++-from-nowhere"})
    assert tools.host_compiler(absent).status == "missing"
    broken = script(tmp_path / "cxx", "#!/bin/sh\necho 'fatal error: vector: No such file'\nexit 1\n")
    found = tools.host_compiler(replace(context, environ={**os.environ, "NVCC_CCBIN": str(broken)}))
    assert found.detail.endswith("does not compile C++17: fatal error: vector: No such file")


def test_cutlass_headers_are_judged_by_including_one(context: Context, tmp_path: Path) -> None:
    nvcc = needs_nvcc()
    real = Toolchain.find().cutlass
    assert real is not None
    asked = replace(context, backends=frozenset(("cutlass",)))
    assert tools.cutlass(replace(asked, toolchain=Toolchain(nvcc=nvcc, cutlass=real))).status == "ok"
    empty = Cutlass((tmp_path,), "4.2.0")
    found = tools.cutlass(replace(asked, toolchain=Toolchain(nvcc=nvcc, cutlass=empty)))
    assert (found.status, found.required) == ("missing", True)
    assert "cutlass/cutlass.h: No such file" in found.detail


def test_ncu_without_permission_is_named_with_its_remedy(context: Context, tmp_path: Path) -> None:
    text = (
        '#!/bin/sh\n[ "$1" = --version ] && echo "Version 2025.3.1.0" && exit 0\n'
        "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access the counters'\nexit 1\n"
    )
    (context.folder / "program").write_text("")
    found = tools.ncu(replace(context, gpu=GPU, toolchain=Toolchain(ncu=script(tmp_path / "ncu", text))))
    assert found.status == "missing"
    assert "ERR_NVGPUCTRPERM" in found.detail
    assert found.remedy is not None
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.remedy


def test_ncu_and_the_sanitizer_count_when_they_did_their_work(context: Context, tmp_path: Path) -> None:
    (context.folder / "program").write_text("")
    head = '#!/bin/sh\n[ "$1" = --version ] && echo "Version 2025.3.1.0" && exit 0\n'
    ncu = script(tmp_path / "ncu", head + "echo 'gpu__time_duration.sum us 1.9'\n")
    sanitizer = script(tmp_path / "compute-sanitizer", head + "echo '========= ERROR SUMMARY: 0 errors'\n")
    able = replace(context, gpu=GPU, toolchain=Toolchain(ncu=ncu, compute_sanitizer=sanitizer))
    assert [tools.ncu(able).status, tools.compute_sanitizer(able).status] == ["ok", "ok"]
    untried = replace(able, gpu=None)
    assert [tools.ncu(untried).status, tools.compute_sanitizer(untried).status] == ["warning", "warning"]
    silent = script(tmp_path / "silent", head)
    assert tools.ncu(replace(able, toolchain=Toolchain(ncu=silent))).status == "missing"


def test_a_toolkit_newer_than_the_driver_is_found_by_version(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "driver_cuda", lambda: (12, 4))
    found = machine.driver(replace(context, gpu=GPU, toolchain=Toolchain(nvcc=Nvcc(Path("nvcc"), "13.0.88"))))
    assert (found.status, found.required) == ("missing", True)
    assert found.detail == "driver 580.159.04, CUDA up to 12.4; nvcc is 13.0"
    newer = machine.driver(replace(context, gpu=GPU, torch=None, toolchain=Toolchain(nvcc=Nvcc(Path("nvcc"), "12.9.86"))))
    assert newer.status == "ok"  # within one major version the driver runs the newer toolkit's SASS


def test_a_program_that_the_driver_does_not_run_is_found_by_running_it(context: Context) -> None:
    script(context.folder / "program", "#!/bin/sh\necho 'CUDA error: CUDA driver version is insufficient'\nexit 1\n")
    found = machine.driver(replace(context, gpu=GPU, torch=None))
    assert found.status == "missing"
    assert found.detail.endswith("does not run: CUDA error: CUDA driver version is insufficient")


def test_an_arch_that_the_gpu_cannot_run_is_missing(context: Context) -> None:
    assert machine.capability(replace(context, gpu=GPU)).status == "ok"
    found = machine.capability(replace(context, gpu=GPU, target=Target("sm_80")))
    assert (found.status, found.remedy) == ("missing", "--kopt-arch sm_90a")


def test_a_cpu_build_of_torch_is_fine_without_a_gpu_and_missing_with_one(context: Context) -> None:
    cpu = environment.Torch("2.13.0+cpu", None, None)
    assert machine.torch(replace(context, torch=cpu)).status == "ok"
    found = machine.torch(replace(context, torch=cpu, gpu=GPU))
    assert (found.status, found.detail) == ("missing", "torch 2.13.0+cpu, CPU build, on a machine with a GPU")
    assert machine.torch(replace(context, torch=environment.Torch("2.9.1", "13.0", None))).status == "missing"
    assert machine.torch(replace(context, torch=None)).detail == "torch is not installed"


def test_a_torch_that_does_not_import_is_missing_with_its_error(context: Context, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')")
    found = machine.torch(replace(context, environ={**os.environ, "PYTHONPATH": str(tmp_path)}))
    assert found.status == "missing"
    assert found.detail.endswith("can't be imported: ImportError: libcudart.so.13: cannot open shared object file")


def test_a_triton_other_than_torchs_is_a_warning_and_one_out_of_range_missing(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "version", lambda package: "3.9.0")
    paired = machine.triton(replace(context, torch=environment.Torch("2.13.0", "13.0", "3.7.1")))
    assert (paired.status, paired.remedy) == ("warning", "pip install triton==3.7.1")
    monkeypatch.setattr(environment, "version", lambda package: "3.5.1")
    assert machine.triton(context).status == "missing"


def test_a_cache_folder_that_cannot_be_written_is_a_warning(context: Context, tmp_path: Path) -> None:
    assert machine.cache_folder(context).status == "ok"
    (tmp_path / "file").write_text("")
    found = machine.cache_folder(replace(context, cache=tmp_path / "file" / "cache"))
    assert found.status == "warning"
    assert found.remedy is not None
    assert "KOPT_CACHE_DIR" in found.remedy


def test_kernels_without_a_reference_are_named(context: Context) -> None:
    found = machine.references(replace(context, specs=[spec("a.cu"), spec("b.cu", reference=False)]))
    assert (found.status, found.required) == ("warning", False)
    assert found.detail == "1 of 2 kernels without a reference, so unverified: b.cu"
    assert found.remedy == "write b_ref.py beside it"
    assert machine.references(context).status == "ok"


def test_a_file_that_is_no_kernel_by_mistake_is_missing_with_its_sentence(context: Context) -> None:
    found = machine.references(replace(context, refused=["c_ref.py:3: `cases` is no literal"]))
    assert (found.status, found.required) == ("missing", True)
    assert found.detail == "1 of 2 files can't be taken as kernels: c_ref.py:3: `cases` is no literal"


def test_the_files_hold_the_whole_report(tmp_path: Path) -> None:
    report = Preflight(
        created="2030-01-01T00:00:00+00:00",
        ready=False,
        environment=environment.describe(None, Toolchain()),
        checks=(
            Check(name="nvcc", status="missing", detail="a | b", remedy="install it", required=True),
            Check(name="disk", status="ok", detail="9 GiB free", remedy=None),
        ),
    )
    page, data = preflight.write(report, tmp_path / "new")
    assert Preflight.model_validate_json(data.read_text()) == report
    assert json.loads(data.read_text())["schema_version"] == 1
    assert "**not ready: nvcc missing**" in page.read_text()
    assert "| nvcc | missing | yes | a \\| b | install it |" in page.read_text()
    assert sorted(p.name for p in page.parent.iterdir()) == ["preflight_check.json", "preflight_check.md"]


def test_the_table_fits_a_terminal_and_shows_remedies_only_where_something_is_wrong(tmp_path: Path) -> None:
    report = preflight.run([], toolchain=Toolchain(), cache=tmp_path)
    text = preflight.render(report)
    assert all(len(line) <= 110 or "/" in line for line in text.splitlines())
    assert text.count("->") == sum(1 for c in report.checks if c.status != "ok" and c.remedy)


HEADER = """
import json, sys
from pytest_kernelopt.core import preflight
lines = preflight.header()
print(json.dumps([lines, [m for m in ("torch", "triton", "pydantic") if m in sys.modules]]))
"""


def header(**environ: str) -> tuple[list[str], list[str]]:
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | environ
    done = subprocess.run([sys.executable, "-c", HEADER], env=env, capture_output=True, text=True, check=True)
    lines, imported = json.loads(done.stdout)
    return lines, imported


def test_the_header_names_the_gpu_and_imports_nothing_heavy(tmp_path: Path) -> None:
    lines, imported = header(LD_LIBRARY_PATH=str(build(tmp_path)))
    assert lines[0] == "kernelopt: Fast card (sm_90a, driver 580.159.04)"
    assert "torch 2." in lines[1]
    # two different cards: CUDA itself had to be asked which comes first, and the answer is a record
    assert set(imported) <= {"pydantic"}


def test_the_header_says_what_is_done_without_a_gpu() -> None:
    lines, imported = header(CUDA_VISIBLE_DEVICES="")
    assert lines[0].startswith("kernelopt: no GPU (")
    assert lines[0].endswith("Triton runs in the interpreter, .cu files are only compiled (sm_90a)")
    assert len(lines) == 2
    assert imported == []
