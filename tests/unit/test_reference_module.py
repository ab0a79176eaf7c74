"""Importing a reference: what it may hold, what it must not disturb, and whose line an error names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_kernelopt.core.errors import KernelError, Unavailable
from pytest_kernelopt.core.reference.module import Reference, load_reference


def write(folder: Path, text: str | bytes, name: str = "op_ref.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def loaded(folder: Path, text: str | bytes) -> Reference:
    return load_reference(write(folder, text))


def test_two_references_of_one_name_keep_apart_with_their_siblings(tmp_path):
    for name, value in (("one", 1), ("two", 2)):
        write(tmp_path / name, f"def value():\n    return {value}\n", "shared_math.py")
        text = "from shared_math import value\n\ndef reference(x):\n    import late\n    return value() + late.late\n"
        write(tmp_path / name, text)
        write(tmp_path / name, f"late = {10 * value}\n", "late.py")
    one, two = (load_reference(tmp_path / name / "op_ref.py") for name in ("one", "two"))
    assert [r.call("reference", r.function, {"x": 0}) for r in (one, two, one)] == [11, 22, 11]
    assert "shared_math" not in sys.modules
    assert "late" not in sys.modules
    assert str(tmp_path / "one") not in sys.path


def test_a_sibling_is_one_module_for_all_calls(tmp_path):
    write(tmp_path, "calls = []\n", "state_of_ref.py")
    text = "def reference(x):\n    import state_of_ref as s\n    s.calls.append(x)\n    return len(s.calls)\n"
    reference = loaded(tmp_path, text)
    assert [reference.call("reference", reference.function, {"x": 0}) for _ in range(3)] == [1, 2, 3]


def test_a_package_beside_the_reference_is_imported_with_its_submodules(tmp_path):
    write(tmp_path / "pkg_of_ref", "", "__init__.py")
    write(tmp_path / "pkg_of_ref", "two = 2\n", "inner.py")
    reference = loaded(tmp_path, "import pkg_of_ref.inner\ndef reference(x):\n    return pkg_of_ref.inner.two\n")
    assert reference.call("reference", reference.function, {"x": 0}) == 2
    assert not [name for name in sys.modules if name.startswith("pkg_of_ref")]


def test_nothing_is_written_beside_the_users_files(tmp_path):
    write(tmp_path, "a = 1\n", "sibling.py")
    script = (
        "import sys; from pathlib import Path; from pytest_kernelopt.core.reference.module import load_reference;"
        "r = load_reference(Path(sys.argv[1])); r.call('reference', r.function, {})"
    )
    path = write(tmp_path, "import sibling\ndef reference():\n    import late\n")
    write(tmp_path, "", "late.py")
    writing = {n: value for n, value in os.environ.items() if n not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")}
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, cwd=Path(__file__).parents[2], env=writing)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["late.py", "op_ref.py", "sibling.py"]


def test_a_byte_order_mark_and_a_stale_pyc_do_no_harm(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbfdef reference(x): return 1\n")
    assert load_reference(path).function(0) == 1
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    assert load_reference(path).function(0) == 2


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_annotations_may_be_text(tmp_path, future):
    reference = loaded(
        tmp_path,
        future + "import torch\nfrom torch import Tensor\nfrom jaxtyping import Float, Int32\n"
        'def reference(x: \'Float[Tensor, "rows cols"]\', i: Int32[Tensor, ""], alpha: "float" = 2, n=3, y=None)'
        ' -> tuple[Float[Tensor, "rows"], Int32[Tensor, "2*rows"]]:\n    ...\n',
    )
    x, i, alpha, n, y = reference.parameters
    assert x.tensor.axes == ("rows", "cols")
    assert (i.kind, i.tensor.axes, i.tensor.dtypes) == ("tensor", (), ("int32",))
    assert (alpha.kind, alpha.scalar, alpha.default, alpha.has_default) == ("scalar", float, 2, True)
    assert (n.kind, n.scalar) == ("scalar", int)
    assert (y.kind, y.has_default) == ("unknown", True)
    assert [t.axes for t in reference.returns.types] == [("rows",), ("2*rows",)]
    assert reference.returns.shaped


@pytest.mark.parametrize(
    ("annotation", "style", "count", "shaped"),
    [
        ("", "unknown", 0, False),
        (" -> None", "none", 0, False),
        (" -> Tensor", "tensors", 1, False),
        (' -> Float[Tensor, "n"]', "tensors", 1, True),
        (' -> tuple[Float[Tensor, "n"], Tensor]', "tensors", 2, False),
        (' -> tuple[Float[Tensor, "n"], ...]', "unknown", 0, False),
        (" -> dict[str, Tensor]", "unknown", 0, False),
    ],
)
def test_return_annotations(tmp_path, annotation, style, count, shaped):
    text = f"from torch import Tensor\nfrom jaxtyping import Float\ndef reference(x){annotation}: ...\n"
    returns = loaded(tmp_path, text).returns
    assert (returns.style, len(returns.types), returns.shaped) == (style, count, shaped)


def test_what_a_module_says_besides(tmp_path):
    reference = loaded(
        tmp_path,
        "atol, rtol = 1e-5, 0\noutputs = 'y'\ninout = ('acc',)\nconstraints = ['n > 1']\n"
        "def make_inputs(*, seed, device): ...\ndef flops(n): return n\ndef bytes_moved(n): return n\n"
        "def twice_error_of(x): return x\n\n\ndef reference(x): ...\n",
    )
    assert (reference.atol, reference.rtol) == (1e-5, 0.0)
    assert (reference.outputs, reference.inout, reference.constraints) == (("y",), ("acc",), ("n > 1",))
    assert reference.make_inputs is not None
    assert reference.twice_error_of is not None
    assert reference.line == 11
    assert loaded(tmp_path / "bare", "def reference(x): ...\n").outputs is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\n\nimport no_such\n", "op_ref.py:3: the import raised ModuleNotFoundError: No module named 'no_such'"),
        ("def reference(x:\n    return\n", "op_ref.py:1: SyntaxError: "),
        ("def reference(x): ...\nprint(1 / 0)\n", "op_ref.py:2: the import raised ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", "op_ref.py:2: the import raised SystemExit: 3"),
        ("import torch\ntorch.zeros(2).view(3)\n", "op_ref.py:2: the import raised RuntimeError: shape '[3]' is invalid"),
        ("import helper\n", "helper.py:2: the import raised NameError"),
        ("x = 1\n", "op_ref.py: a reference file defines a function reference(), and there is none"),
        ("reference = 3\n", "op_ref.py: a reference file defines a function reference(), and there is a int"),
        ("def reference(x: 'Nope'): ...\n", "op_ref.py:1: the annotations of reference() can't be read: name 'Nope'"),
        ("def reference(*x): ...\n", "op_ref.py:1: reference() is called by keyword: give 'x' as an ordinary parameter"),
        ("def reference(x): ...\natol = 'low'\n", "op_ref.py: atol is a number of at least 0, and not 'low'"),
        ("def reference(x): ...\noutputs = [1]\n", "op_ref.py: outputs is a list of strings"),
        ("def reference(x): ...\nflops = 3\n", "op_ref.py: flops is a int where a function is meant"),
    ],
)
def test_a_reference_that_cannot_be_used_says_where_in_one_sentence(tmp_path, monkeypatch, text, message):
    write(tmp_path, "\nundefined\n", "helper.py")
    path = write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KernelError) as caught:
        load_reference(path)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(KernelError, match="can't be read: No such file"):
        load_reference(tmp_path / "op_ref.py")


def test_an_error_in_a_call_names_the_innermost_line_of_the_users(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "import torch\ndef inner(x):\n    return torch.ones(2) @ x\ndef reference(x):\n    return inner(x)\n"
    reference = loaded(tmp_path, text)
    with pytest.raises(KernelError, match=r"^op_ref\.py:3: reference\(\) raised RuntimeError: "):
        reference.call("reference", reference.function, {"x": torch.ones(3)})


def test_running_out_of_memory_is_not_the_users_mistake(tmp_path):
    reference = loaded(tmp_path, "import torch\ndef reference():\n    return torch.empty(2**55)\n")
    with pytest.raises(Unavailable, match="ran out of memory"):
        reference.call("reference", reference.function, {})


def test_the_modules_can_be_imported_without_torch():
    names = ("module", "shapes", "binding", "inputs", "matching", "directions", "calling", "values")
    imports = "; ".join(f"import pytest_kernelopt.core.reference.{name}" for name in names)
    check = f"import sys; {imports}; assert not {{'torch', 'jaxtyping', 'numpy', 'pydantic'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize(
    "text",
    [
        "class C:\n    def __call__(self, x: Float[Tensor, 'n']) -> Float[Tensor, 'n']:\n        return 2 * x\nreference = C()",
        "def f(k, x: Float[Tensor, 'n']) -> Float[Tensor, 'n']:\n    return k * x\nreference = functools.partial(f, 2)",
    ],
)
def test_an_annotated_callable_is_read_like_a_function(tmp_path: Path, text: str) -> None:
    path = tmp_path / "twice_ref.py"
    path.write_text(f"import functools\nfrom jaxtyping import Float\nfrom torch import Tensor\n{text}\n")
    found = load_reference(path)
    assert [p.name for p in found.parameters] == ["x"]
    assert found.returns.shaped
