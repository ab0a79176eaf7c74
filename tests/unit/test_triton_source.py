"""A Triton module's entry point and parameter names, read without importing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.spec import has_entry, is_kernel_name, load
from pytest_kernelopt.core.spec.model import KernelSpec


def spec_of(folder: Path, source: str | bytes, name: str = "relu_triton.py") -> KernelSpec:
    (folder / name).write_bytes(source if isinstance(source, bytes) else source.encode())
    return load(folder / name)


def names(spec: KernelSpec) -> list[str]:
    return [p.name for p in spec.parameters]


def refusal(folder: Path, source: str | bytes) -> str:
    with pytest.raises(KernelError) as error:
        spec_of(folder, source)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_run_kernel_with_setup(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path, "import triton\n\ndef setup(*, seed=None, n=4):\n    return {}\n\ndef run_kernel(x, y, n):\n    pass\n"
    )
    assert (spec.backend, spec.entry, spec.line, spec.has_setup, spec.takes_any) == ("triton", "run_kernel", 6, True, False)
    assert names(spec) == ["x", "y", "n"]
    assert {p.kind for p in spec.parameters} == {"unknown"}


def test_nothing_of_the_module_is_run(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "raise SystemExit('imported')\nimport no_such_module\ndef run_kernel(x): pass\n")
    assert names(spec) == ["x"]


def test_solve_is_the_entry_of_a_module_without_run_kernel(tmp_path: Path) -> None:
    """SIG-29: 82 of 84 public files have solve() and no setup()."""
    source = "import torch, triton\n\ndef solve(input: torch.Tensor, output: torch.Tensor, N: int):\n    pass\n"
    spec = spec_of(tmp_path, source)
    assert (spec.entry, spec.has_setup, names(spec)) == ("solve", False, ["input", "output", "N"])


def test_run_kernel_wins_over_solve(tmp_path: Path) -> None:
    assert spec_of(tmp_path, "def run_kernel(a): pass\ndef solve(b): pass\n").entry == "run_kernel"


def test_defaults_are_literals_or_unknown(tmp_path: Path) -> None:
    source = "def run_kernel(x, n=2**20, *, eps=1e-5, causal=False, mode='fast', block=BLOCK, scale=None, shape=(1, 2)): pass\n"
    found = {p.name: (p.has_default, p.default) for p in spec_of(tmp_path, source).parameters}
    assert found == {
        "x": (False, None),
        "n": (True, 1048576),
        "eps": (True, 1e-5),
        "causal": (True, False),
        "mode": (True, "fast"),
        "block": (True, None),
        "scale": (True, None),
        "shape": (True, None),
    }


def test_a_keyword_parameter_without_a_default_has_none(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "def run_kernel(x, *, n, m=3): pass\n")
    assert [(p.name, p.has_default) for p in spec.parameters] == [("x", False), ("n", False), ("m", True)]


def test_a_double_star_takes_any_name_and_gives_none(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "def run_kernel(**inputs): pass\n")
    assert (spec.parameters, spec.takes_any) == ((), True)
    spec = spec_of(tmp_path, "def run_kernel(x, *rest, n=1, **inputs): pass\n")
    assert (names(spec), spec.takes_any) == (["x", "n"], True)


def test_a_decorated_entry_is_one(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "import torch\n@torch.no_grad()\ndef run_kernel(x): pass\n")
    assert (names(spec), spec.line) == (["x"], 3)


def test_the_last_definition_counts(tmp_path: Path) -> None:
    assert names(spec_of(tmp_path, "def run_kernel(old): pass\ndef run_kernel(new): pass\n")) == ["new"]


def test_a_definition_in_a_top_level_block_is_one(tmp_path: Path) -> None:
    assert names(
        spec_of(tmp_path, "try:\n    import triton\nexcept ImportError:\n    pass\nelse:\n    def run_kernel(x): pass\n")
    ) == ["x"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "async def run_kernel(x): pass\n",
            "relu_triton.py:1: run_kernel is an async function: write a plain `def run_kernel(...)`",
        ),
        ("class run_kernel: pass\n", "run_kernel is a class"),
        ("from impl import run_kernel\n", "run_kernel is assigned or imported"),
        ("import torch\nsolve = torch.compile(f)\n", "relu_triton.py:2: solve is assigned or imported"),
        ("class K:\n    def run_kernel(self, x): pass\n", "has no entry point: define `run_kernel(**inputs)` or `solve(...)`"),
        ("def outer():\n    def run_kernel(x): pass\n", "has no entry point"),
        ("# def run_kernel(x): pass\n", "has no entry point"),
        ('"""def run_kernel(x): pass"""\n', "has no entry point"),
        ("", "has no entry point"),
        ("def run_kernel(x, /, y): pass\n", "relu_triton.py:1: run_kernel is called by keyword: take the `/` out"),
        ("import torch\n\ndef run_kernel(x:\n    pass\n", "relu_triton.py:3: '(' was never closed"),
        ("def run_kernel(x):\npass\n", "relu_triton.py:2: "),
        (b"s = 'caf\xe9'\ndef run_kernel(x): pass\n", "is not valid Python"),
        (b"def run_kernel(x): pass\n\x00", "relu_triton.py"),
        ("x = " + "(" * 5000 + ")" * 5000 + "\ndef run_kernel(x): pass\n", "relu_triton.py"),
    ],
)
def test_what_is_no_plain_entry_is_refused_with_the_place(tmp_path: Path, source: str | bytes, reason: str) -> None:
    assert reason in refusal(tmp_path, source)


@pytest.mark.parametrize(
    "source",
    [
        "\ufeffdef run_kernel(größe): pass\n".encode(),
        "# -*- coding: latin-1 -*-\n# café\ndef run_kernel(größe): pass\n".encode("latin-1"),
        "# coding: gbk\n# 你好\ndef run_kernel(größe): pass\n".replace("größe", "g").encode("gbk"),
        b"def run_kernel(\r\n    g,\r\n): pass\r\n",
        b"# caf\xe9\nBLOCK = 4  # kopt: tune BLOCK = 4, 8\ndef run_kernel(g): pass\n",
    ],
)
def test_encodings_are_python_s_own(tmp_path: Path, source: bytes) -> None:
    """CMP-15, and PEP 263."""
    assert names(spec_of(tmp_path, source))[0].startswith("g")


def test_an_invalid_escape_is_no_warning_of_ours(tmp_path: Path) -> None:
    assert names(spec_of(tmp_path, "path = '\\d'\ndef run_kernel(x): pass\n")) == ["x"]


@pytest.mark.parametrize(
    ("source", "entry"),
    [
        ("def run_kernel(x): pass\n", True),
        ("def solve(x): pass\n", True),
        ("from impl import run_kernel\n", True),
        ("def run_kernel(x:\n", True),
        ("def helper(x): pass\n", False),
        ("# run_kernel\nx = 'solve'\n", False),
        ("class K:\n    def solve(self): pass\n", False),
        ("def broken(:\n", False),
    ],
)
def test_has_entry_passes_helpers_and_keeps_broken_kernels(tmp_path: Path, source: str, entry: bool) -> None:
    (tmp_path / "k_triton.py").write_text(source)
    assert has_entry(tmp_path / "k_triton.py") is entry


def test_the_name_of_a_file_makes_it_a_kernel() -> None:
    assert [is_kernel_name(Path(n)) for n in ("a.cu", "a_triton.py", "a.py", "a_ref.py", "a_triton_ref.py", "a.cuh")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_a_named_python_file_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "relu.py").write_text("def solve(x): pass\n")
    with pytest.raises(KernelError, match="is no kernel file"):
        load(tmp_path / "relu.py")
    assert load(tmp_path / "relu.py", named=True).entry == "solve"


def test_a_backend_can_be_overridden_within_its_language(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('extern "C" void solve(float* x) {}\n')
    (tmp_path / "k_triton.py").write_text("def solve(x): pass\n")
    assert load(tmp_path / "k.cu", backend="cutlass").backend == "cutlass"
    with pytest.raises(KernelError, match=r"the backend `triton` does not take a `\.cu` file"):
        load(tmp_path / "k.cu", backend="triton")
    with pytest.raises(KernelError, match=r"the backend `cuda` does not take a `\.py` file"):
        load(tmp_path / "k_triton.py", backend="cuda")


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"gone\.cu cannot be read \(No such file or directory\)"):
        load(tmp_path / "gone.cu")
