from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_kernelopt.core.build import Cache, build
from pytest_kernelopt.core.errors import BuildError, Unavailable
from pytest_kernelopt.core.reference.problem import Argument, Problem, TensorSpec
from pytest_kernelopt.core.spec.model import KernelSpec
from pytest_kernelopt.core.toolchain import Target, Toolchain

Compiled = Callable[..., dict[str, Any]]
HEAD = """\
import torch
import triton
import triton.language as tl
"""
ADD = (
    HEAD
    + """
BLOCK = tl.constexpr(256)

@triton.jit
def add(x, y, out, n):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

def run_kernel(x, y, out, n):
    add[(triton.cdiv(n, 256),)](x, y, out, n)
"""
)
MATMUL = (
    HEAD
    + """
CONFIGS = [triton.Config({"B": b}, num_warps=w, num_stages=s) for b, w, s in ((32, 4, 2), (64, 4, 3))]

@triton.autotune(configs=CONFIGS, key=["k"])
@triton.heuristics({"EVEN": lambda args: args["k"] % 64 == 0})
@triton.jit
def matmul(a, b, c, k, B: tl.constexpr, EVEN: tl.constexpr):
    r, col = tl.arange(0, B), tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for start in range(0, k, B):
        x = tl.load(a + r[:, None] * k + start + col[None, :])
        y = tl.load(b + (start + r[:, None]) * k + col[None, :])
        acc += tl.dot(x, y)
    tl.store(c + r[:, None] * k + col[None, :], acc)

def run_kernel(x, y, out, n):
    matmul[(1,)](x, y, out, n)
"""
)


def problem(n: int = 1024, dtype: str = "float32", shape: tuple[int, ...] | None = None) -> Problem:
    tensors = tuple(
        TensorSpec(name, dtype, shape or (n,), role)  # type: ignore[arg-type]
        for name, role in (("x", "input"), ("y", "input"), ("out", "output"))
    )
    arguments = (*(Argument(t.name, "tensor") for t in tensors), Argument("n", "scalar", "int32", n))
    return Problem(tensors, arguments)


# As the "aot" server does: everything is imported once, and each call gets a process of its own.
SERVER = """
import json, os, sys, torch, triton
from pytest_kernelopt.core.build.triton import compile_launches
for line in sys.stdin:
    if (child := os.fork()) == 0:
        print("RESULT" + json.dumps(compile_launches(None, **json.loads(line))), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("the child died")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON")} | {
        "CUDA_VISIBLE_DEVICES": ""
    }
    log = tmp_path_factory.mktemp("server") / "stderr"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        ) as process,
    ):
        yield process
    assert "TRITON_DEFAULT_FP_FUSION" not in log.read_text()


@pytest.fixture
def compiled(server: subprocess.Popen[str], tmp_path: Path) -> Compiled:
    def run(
        file: str, source: str, case: Problem | None = None, arch: str = "sm_90a", entry: str = "run_kernel"
    ) -> dict[str, Any]:
        path = tmp_path / file
        path.write_text(source, encoding="utf-8")
        call = {
            "path": str(path),
            "entry": entry,
            "arch": arch,
            "problem": (case or problem()).to_json(),
            "scratch": str(tmp_path / "t"),
        }
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(call) + "\n")
        server.stdin.flush()
        line = next(line for line in server.stdout if line.startswith("RESULT"))
        result: dict[str, Any] = json.loads(line.removeprefix("RESULT"))
        return result

    return run


def test_a_launch_compiles_and_its_resources_are_read(compiled: Compiled) -> None:
    result = compiled("add_triton.py", ADD)
    assert (result["error"], result["deferred"], result["notes"]) == (None, None, [])
    assert result["compiler"].startswith("triton 3.")
    (kernel,) = result["kernels"]
    assert kernel["name"] == "add"
    assert kernel["arch"] == "sm_90a"
    assert kernel["config"] is None
    assert 8 <= kernel["registers"] <= 64
    assert (kernel["spill_store_bytes"], kernel["stack_bytes"], kernel["dynamic_shared_bytes"]) == (0, 0, 0)
    assert kernel["binary_bytes"] > 1000


def test_every_autotune_config_is_named_with_its_own_resources(compiled: Compiled) -> None:
    result = compiled("m_triton.py", MATMUL, case=problem(64, "float16", (64, 64)), arch="sm_80")
    assert result["error"] is None
    assert [k["config"] for k in result["kernels"]] == [
        "B=32, num_warps=4, num_ctas=1, num_stages=2",
        "B=64, num_warps=4, num_ctas=1, num_stages=3",
    ]
    small, large = result["kernels"]
    assert small["arch"] == "sm_80"
    assert 0 < small["dynamic_shared_bytes"] < large["dynamic_shared_bytes"]


def test_each_version_is_compiled_anew_even_when_only_a_module_constant_changed(compiled: Compiled) -> None:
    first = compiled("add_triton.py", ADD)
    second = compiled("add_triton.py", ADD.replace("constexpr(256)", "constexpr(4096)"))
    assert first["kernels"][0]["registers"] != second["kernels"][0]["registers"]


def test_nothing_is_written_beside_the_users_file_and_siblings_are_importable(compiled: Compiled, tmp_path: Path) -> None:
    place = tmp_path / "мои ядра"
    place.mkdir()
    (place / "sizes.py").write_text("BLOCK = 128\n")
    source = ADD.replace("import torch\n", "import torch\nimport sizes\n").replace("constexpr(256)", "constexpr(sizes.BLOCK)")
    result = compiled("мои ядра/add_triton.py", source)
    assert (result["error"], len(result["kernels"])) == (None, 1)
    assert sorted(p.name for p in place.iterdir()) == ["add_triton.py", "sizes.py"]


def test_wrappers_that_check_for_a_gpu_and_allocate_on_it_run_as_they_are(compiled: Compiled) -> None:
    source = ADD.replace(
        "    add[",
        "    assert x.is_cuda and x.device.type == 'cuda'\n"
        "    partial = torch.empty_like(x, device=x.device) + torch.zeros(n, device='cuda')\n"
        "    x = partial.to('cuda').cuda()\n"
        "    add[",
    )
    source += "\nDEVICE = triton.runtime.driver.active.get_active_torch_device()\n"
    result = compiled("add_triton.py", source)
    assert (result["error"], result["deferred"], len(result["kernels"])) == (None, None, 1)


def test_solve_is_called_in_order_and_strides_are_kept(compiled: Compiled) -> None:
    source = ADD.replace(
        "def run_kernel(x, y, out, n):",
        "def solve(a, b, c, count):\n    x, y, out, n = a, b, c, count\n    assert a.stride() == (1, 8), a.stride()",
    )
    tensors = tuple(TensorSpec(name, "bfloat16", (8, 4), "input", (1, 8)) for name in ("x", "y", "out"))
    case = Problem(tensors, (*(Argument(t.name, "tensor") for t in tensors), Argument("n", "scalar", "int32", 32)))
    result = compiled("add_triton.py", source, case=case, entry="solve")
    assert (result["error"], result["deferred"], len(result["kernels"])) == (None, None, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("mask=i < n) +", "mask=i < nothing) +"), "add_triton.py:10: "),
        (("tl.arange(0, BLOCK)", "tl.arange(0, 100)"), "add_triton.py:9: "),
        (
            ("import torch\n", "import torch\nimport absent_module\n"),
            "add_triton.py:2: ModuleNotFoundError: No module named 'absent_module'",
        ),
        (("def run_kernel(x", "def run_kernel(x,, x"), "add_triton.py:12: SyntaxError: "),
        (("    add[", "    added["), "add_triton.py:13: NameError: name 'added' is not defined"),
        (("(x, y, out, n)\n", "(x, y, out)\n"), "add_triton.py:13: TypeError: "),
        (
            ("def run_kernel(x, y, out, n)", "def run_kernel(x, y, n)"),
            "run_kernel is called with x, y, out, n: got an unexpected keyword argument 'out'",
        ),
        (("def run_kernel", "def run"), "add_triton.py: run_kernel is no function once the module is imported"),
        (("import torch\n", "import torch\nraise SystemExit(3)\n"), "add_triton.py:2: SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_work_is_refused_at_the_users_own_line(
    compiled: Compiled, change: tuple[str, str], message: str
) -> None:
    result = compiled("add_triton.py", ADD.replace(*change))
    assert result["error"]["message"].startswith(message)
    assert "\n" not in result["error"]["message"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            ("    add[", "    if x.sum() == 0:\n        raise ValueError('empty')\n    add["),
            "add_triton.py:14: ValueError: empty",
        ),
        (("    add[", "    torch.cuda.synchronize()\n    add["), "add_triton.py:13: "),
        (("BLOCK = ", "SMS = torch.cuda.get_device_properties(0).multi_processor_count\nBLOCK = "), "add_triton.py:5: "),
        (("    add[", "    return x + y\n    add["), "run_kernel launched no Triton kernel"),
    ],
)
def test_what_needs_real_values_or_a_gpu_is_left_to_the_first_launch(
    compiled: Compiled, change: tuple[str, str], reason: str
) -> None:
    result = compiled("add_triton.py", ADD.replace(*change))
    assert result["error"] is None
    assert result["deferred"].startswith(reason)


def test_a_config_that_does_not_fit_is_noted_and_one_that_is_the_only_one_is_refused(compiled: Compiled) -> None:
    case = problem(256, "float32", (256, 256))
    both = MATMUL.replace("((32, 4, 2), (64, 4, 3))", "((32, 4, 2), (128, 8, 5))")
    result = compiled("m_triton.py", both, case=case, arch="sm_89")
    assert result["error"] is None
    assert result["notes"] == [
        "config B=128, num_warps=8, num_ctas=1, num_stages=5 of matmul needs more shared memory than sm_89 has"
    ]
    alone = MATMUL.replace("((32, 4, 2), (64, 4, 3))", "((128, 8, 5),)")
    result = compiled("m_triton.py", alone, case=case, arch="sm_89")
    assert "a block on sm_89 has 101376" in result["error"]["message"]


def test_a_config_that_fails_its_static_assert_is_left_out_as_the_autotuner_does(compiled: Compiled) -> None:
    source = MATMUL.replace("    acc = ", "    tl.static_assert(B < 64)\n    acc = ")
    result = compiled("m_triton.py", source, case=problem(64, "float16", (64, 64)))
    assert result["error"] is None
    assert len(result["kernels"]) == 1
    assert result["notes"][0].startswith("config B=64")


def spec(path: Path) -> KernelSpec:
    path.write_text(ADD)
    return KernelSpec(path, "triton", "run_kernel", 12, ())


def test_the_parent_makes_a_record_of_what_the_child_says(tmp_path: Path) -> None:
    kernel = {"name": "add", "arch": "sm_90a", "registers": 20, "config": "B=1", "binary_bytes": 700}
    asked = []

    def ahead(*arguments: str) -> dict[str, Any]:
        asked.append(arguments[:3])
        return {"compiler": "triton 3.9.0", "kernels": [kernel], "notes": ["n"], "deferred": "k.py:1: why", "error": None}

    file = tmp_path / "add_triton.py"
    artifact = build(spec(file), Target(), Toolchain(), Cache(tmp_path / "cache"), ahead=ahead)
    assert asked == [(str(file), "run_kernel", "sm_90a")]
    assert artifact.path is None
    assert artifact.record.kernels[0].registers == 20
    assert artifact.record.binary_bytes == 700
    assert artifact.record.notes == ("n", "built at first launch: k.py:1: why")


def test_an_error_in_the_child_is_a_build_error_in_the_parent(tmp_path: Path) -> None:
    def ahead(*arguments: str) -> dict[str, Any]:
        return {"error": {"message": "add_triton.py:3: no", "log": "all of it"}}

    with pytest.raises(BuildError, match=r"add_triton\.py:3: no") as error:
        build(spec(tmp_path / "add_triton.py"), Target(), Toolchain(), Cache(tmp_path / "cache"), ahead=ahead)
    assert error.value.log == "all of it"
    with pytest.raises(Unavailable, match="no case"):
        build(spec(tmp_path / "add_triton.py"), Target(), Toolchain(), Cache(tmp_path / "cache"))


def test_the_parents_side_imports_no_triton() -> None:
    heavy = ("torch", "triton", "pydantic", "numpy")
    script = f"import sys, pytest_kernelopt.core.build; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
