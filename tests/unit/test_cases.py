"""Cases, settings and dims: from a reference's literals and from the command line, never executed."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_kernelopt.core.errors import KernelError
from pytest_kernelopt.core.spec import check_settings, literals, load, parse_dims
from pytest_kernelopt.core.spec.model import Case, KernelSpec

KERNEL = 'extern "C" void solve(const float* x, float* y, int rows, int cols) {}\n'


def spec_of(folder: Path, reference: str | bytes, **options: object) -> KernelSpec:
    (folder / "k.cu").write_text(KERNEL)
    (folder / "k_ref.py").write_bytes(reference if isinstance(reference, bytes) else reference.encode())
    return load(folder / "k.cu", **options)  # type: ignore[arg-type]


def refusal(folder: Path, reference: str, **options: object) -> str:
    with pytest.raises(KernelError) as error:
        spec_of(folder, reference, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_whole_reference_is_read_and_not_run(tmp_path: Path) -> None:
    source = """\
from jaxtyping import Float
import no_such_module
raise SystemExit("imported")
cases = [
    {"rows": 4 * 1024, "cols": 2**10, "alpha": 0.5, "causal": True, "dtype": "float16"},
    {"rows": 1 << 2, "cols": -(-7 // 2)},
]
timed: list = [{"rows": 16384, "cols": 1024}]
atol, rtol = 1e-5, 1e-4
kopt = {"compute": "tf32", "allow_libraries": False, "gate": ["registers <= 64"], "max_regression": "3%"}
outputs = ["y"]
inout = []
constraints = ["cols % 4 == 0", "0 < rows <= 2**20 and cols != 3"]

def reference(x): ...
def make_inputs(*, seed, device, **dims): ...
flops = lambda **dims: 1
"""
    spec = spec_of(tmp_path, source)
    assert [c.id for c in spec.cases] == ["rows4096-cols1024-alpha0.5-causalTrue-dtypefloat16", "rows4-cols4"]
    assert [c.id for c in spec.timed] == ["rows16384-cols1024"]
    assert spec.reference is not None
    assert dict(spec.reference.settings) == {
        "compute": "tf32",
        "allow_libraries": False,
        "gate": ["registers <= 64"],
        "max_regression": "3%",
        "atol": 1e-5,
        "rtol": 1e-4,
        "outputs": ("y",),
        "inout": (),
        "constraints": ("cols % 4 == 0", "0 < rows <= 2**20 and cols != 3"),
    }
    assert {"reference", "make_inputs", "flops", "Float"} <= spec.reference.defines


def test_without_cases_there_is_one_without_dims_and_the_first_is_timed(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "def reference(x): return x\n")
    assert (spec.cases, spec.timed, spec.cases[0].id) == ((Case(),), (Case(),), "default")
    spec = spec_of(tmp_path, "cases = [{}]\n")
    assert spec.cases == (Case(),)
    spec = spec_of(tmp_path, "cases = ({'rows': 2}, {'rows': 3})\n")
    assert [c.id for c in spec.timed] == ["rows2"]


NOT_LITERAL = {
    "cases = [{'rows': n} for n in (1, 2)]": "k_ref.py:1: `cases` is a comprehension",
    "\ncases = make()": "k_ref.py:2: `cases` calls a function",
    "N = 3\ncases = [{'rows': N}]": "k_ref.py:2: `cases` uses the name `N`",
    "cases = [\n  {'rows': 1},\n  {'rows': len('abc')},\n]": "k_ref.py:3: `cases` calls a function",
    "cases = [{'rows': 1}]\ncases += [{'rows': 2}]": "k_ref.py:2: `cases` is not one plain assignment",
    "cases = [{'rows': 1}]\ncases.append({'rows': 2})": "k_ref.py:2: `cases` is not one plain assignment",
    "cases = [{'rows': 1}]\ncases[0]['rows'] = 2": "k_ref.py:2: `cases` is not one plain assignment",
    "if True:\n    cases = [{'rows': 1}]": "k_ref.py:2: `cases` is not one plain assignment",
    "try:\n    pass\nfinally:\n    cases = [{'rows': 1}]": "k_ref.py:4: `cases` is not one plain assignment",
    "from other import cases": "k_ref.py:1: `cases` is not one plain assignment",
    "def cases(): return []": "k_ref.py:1: `cases` is not one plain assignment",
    "cases, other = make()": "k_ref.py:1: `cases` is not one plain assignment",
    "cases = [{**{'rows': 1}}]": "`cases` unpacks with `**`",
    "cases = [{'rows': 9**9**9}]": "is a number of more than 4096 bits",
    "cases = [{'rows': 1 << 99999}]": "is a number of more than 4096 bits",
    "cases = [{'rows': 1 // 0}]": "cannot be computed",
    "cases = [{'rows': 1e999}]": "is not a finite number",
    "cases = [{'rows': 'a' * 9}]": "does not fit its operands",
    "cases = [{'rows': f'{1}'}]": "is more than constants and arithmetic",
    "cases = [{'rows': 1, 'rows': 2}]": "has the key 'rows' twice",
    "cases = [{'rows': 1j}]": "holds a complex",
}


@pytest.mark.parametrize("source", NOT_LITERAL)
def test_cases_that_are_no_literal_are_refused_and_the_hook_is_named(tmp_path: Path, source: str) -> None:
    started = time.perf_counter()
    message = refusal(tmp_path, source + "\n")
    assert NOT_LITERAL[source] in message
    assert "`pytest_kopt_cases` in a conftest.py" in message
    assert time.perf_counter() - started < 1


WRONG = {
    "cases = []": "k_ref.py:1: `cases` is empty",
    "cases = {'rows': 1}": "`cases` must be a list of dicts, such as [{'rows': 4096}], and is of type dict",
    "cases = None": "`cases` must be a list of dicts, such as [{'rows': 4096}], and is None",
    "cases = [3]": "`cases[0]` must be a dict of dims",
    "cases = [{'rows': 1}, {'two words': 1}]": "`cases[1]`: a dim's name must be an identifier, and 'two words' is none",
    "cases = [{3: 1}]": "a dim's name must be an identifier, and 3 is none",
    "cases = [{'rows': [1, 2]}]": "the dim `rows` must be a number, a bool or a string, and is of type list",
    "cases = [{'rows': None}]": "the dim `rows` must be a number, a bool or a string, and is None",
    "cases = [{'rows': 1}, {'rows': 2}, {'rows': 1}]": "`cases[0]` and `cases[2]` have the same id `rows1`",
    "cases = [{'a': 11}, {'a1': 1}]": "have the same id `a11`",
    "cases = [{'mode': 'a=b'}]": "the dim `mode` is 'a=b', and a test id holds",
    "cases = [{'mode': 'a::b'}]": "and a test id holds",
    "cases = [{'mode': 'a b[0]'}]": "and a test id holds",
    "cases = [{'mode': ''}]": "and a test id holds",
    "cases = [{'dtype': 'float15'}]": "`float15` is no dtype: did you mean `float16`",
    "timed = []": "`timed` is empty",
    "timed = [{'rows': 1}, {'rows': 1}]": "`timed[0]` and `timed[1]` have the same id",
    "kopt = []": "`kopt` must be a dict",
    "\nkopt = {'rtoll': 1}": "k_ref.py:2: `kopt` has no key 'rtoll': did you mean `rtol` or `atol`?",
    "kopt = {'zzzz': 1}": "`kopt` has no key 'zzzz': known are `atol`",
    "kopt = {'rtol': -1}": "`kopt['rtol']` must be a number that is not negative, and is -1",
    "kopt = {'rtol': True}": "`kopt['rtol']` must be a number",
    "kopt = {'gate': 'registers <= 64'}": "`kopt['gate']` must be a list of limits",
    "kopt = {'allow_libraries': 1}": "`kopt['allow_libraries']` must be True or False",
    "kopt = {'rtol': 1e-3}\nrtol = 1e-4": "k_ref.py:2: `rtol` and `kopt['rtol']` differ",
    "kopt = build()": "`kopt` calls a function; it is read and never run, so it must be a literal",
    "atol = '1e-3'": "`atol` must be a number",
    "atol = float('1e-3')": "`atol` calls a function",
    "atol = -1e-3": "`atol` must be a number that is not negative",
    "outputs = []": "`outputs` must be a list of different names, at least one",
    "outputs = 'y'": "`outputs` must be a list of different names",
    "outputs = ['y', 'y']": "`outputs` must be a list of different names",
    "inout = [3]": "`inout` must be a list of different names",
    "constraints = ['cols %']": "`constraints`: `cols %` is not an expression such as `cols % 4 == 0`",
    "constraints = ['exit()']": "is more than comparisons and arithmetic on dims",
    "constraints = ['cols.x > 1']": "is more than comparisons and arithmetic on dims",
    "cases = [{'rows': 1}": "k_ref.py:1: '[' was never closed",
}


@pytest.mark.parametrize("source", WRONG)
def test_a_wrong_value_is_one_sentence_with_its_place(tmp_path: Path, source: str) -> None:
    message = refusal(tmp_path, source + "\n")
    assert WRONG[source] in message
    assert "k_ref.py:" in message


def test_what_only_a_script_does_with_cases_is_no_matter(tmp_path: Path) -> None:
    source = "cases = [{'rows': 1}]\nprint(cases)\nbig = [c['rows'] for c in cases]\n"
    source += "if __name__ == '__main__':\n    cases = []\n    cases.append(1)\n"
    assert [c.id for c in spec_of(tmp_path, source).cases] == ["rows1"]


def test_cases_and_timed_may_be_one_assignment(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "cases = timed = [{'rows': 1}, {'rows': 2}]\n")
    assert len(spec.cases) == len(spec.timed) == 2


def test_a_reference_with_a_bom_or_another_encoding_is_read(tmp_path: Path) -> None:
    """CMP-15."""
    assert spec_of(tmp_path, b"\xef\xbb\xbfcases = [{'rows': 7}]\r\n").cases[0].id == "rows7"
    assert spec_of(tmp_path, b"# coding: latin-1\n# caf\xe9\ncases = [{'rows': 8}]\n").cases[0].id == "rows8"


def test_cases_of_a_conftest_replace_those_of_the_reference(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "cases = compute()\nrtol = 1e-3\n", conftest_cases=[{"rows": 5}, {"rows": 6}])
    assert [c.id for c in spec.cases] == ["rows5", "rows6"]
    assert [c.id for c in spec.timed] == ["rows5"]
    assert spec.reference is not None
    assert spec.reference.settings == {"rtol": 1e-3}


def test_cases_of_a_conftest_need_no_reference(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    spec = load(tmp_path / "k.cu", conftest_cases=[{"rows": 5}])
    assert (spec.reference, [c.id for c in spec.cases]) == (None, ["rows5"])
    with pytest.raises(KernelError, match="`pytest_kopt_cases` is empty"):
        load(tmp_path / "k.cu", conftest_cases=[])


@pytest.mark.parametrize(
    ("kernel", "looked_for"),
    [
        ("softmax.cu", ("softmax_ref.py",)),
        ("softmax_triton.py", ("softmax_triton_ref.py", "softmax_ref.py")),
        ("softmax_cutlass.cu", ("softmax_cutlass_ref.py", "softmax_ref.py")),
        ("softmax_cuda.cu", ("softmax_cuda_ref.py", "softmax_ref.py")),
        ("_triton.py", ("_triton_ref.py",)),
    ],
)
def test_a_reference_is_the_kernel_s_own_before_the_shared_one(tmp_path: Path, kernel: str, looked_for: tuple[str, ...]) -> None:
    (tmp_path / kernel).write_text(KERNEL if kernel.endswith(".cu") else "def solve(x): pass\n")
    spec = load(tmp_path / kernel)
    assert (spec.reference, spec.looked_for) == (None, looked_for)
    for name in reversed(looked_for):
        (tmp_path / name).write_text("cases = [{'rows': 1}]\n")
        found = load(tmp_path / kernel).reference
        assert found is not None
        assert found.path.name == name


def test_a_reference_may_name_the_backend(tmp_path: Path) -> None:
    assert spec_of(tmp_path, "kopt = {'backend': 'cutlass'}\n").backend == "cutlass"
    assert spec_of(tmp_path, "kopt = {'backend': 'cutlass'}\n", backend="cuda").backend == "cuda"
    assert "the backend `triton` does not take" in refusal(tmp_path, "kopt = {'backend': 'triton'}\n")


def test_marker_settings_are_checked_like_those_of_a_reference() -> None:
    assert check_settings({"rtol": 1e-3}, "test_x.py") == {"rtol": 1e-3}
    with pytest.raises(KernelError, match=r"test_x\.py: `kopt` has no key 'tolerance'"):
        check_settings({"tolerance": 1}, "test_x.py")


DIMS = {
    "rows=4096,cols=1e3": {"rows": 4096, "cols": 1000},
    "N=1e6": {"N": 1000000},
    "N=1.5e3": {"N": 1500},
    "N=2*1e3": {"N": 2000},
    "n=2**20": {"n": 1048576},
    "n=1<<20": {"n": 1048576},
    "n=4*1024+1": {"n": 4097},
    "n=(1+2)*3": {"n": 9},
    "alpha=0.5": {"alpha": 0.5},
    "alpha=1.0": {"alpha": 1.0},
    "lo=-1.5,hi=1e-5": {"lo": -1.5, "hi": 1e-5},
    "n=-3": {"n": -3},
    "n=-1e3": {"n": -1000},
    "n=0x10": {"n": 16},
    "n=4_096": {"n": 4096},
    "n=04096": {"n": 4096},
    "n=0": {"n": 0},
    "x=0.05": {"x": 0.05},
    "x=1e22": {"x": 10**22},
    "causal=true,fast=False": {"causal": True, "fast": False},
    "dtype=float16": {"dtype": "float16"},
    "mode='same'": {"mode": "same"},
    " rows = 4096 , cols = 2 ** 10 ": {"rows": 4096, "cols": 1024},
    "b=1,r=2,a=3": {"b": 1, "r": 2, "a": 3},
    "m=4096,k=64,i=5,s=7,w=64,p=5,j=16": {"m": 4096, "k": 64, "i": 5, "s": 7, "w": 64, "p": 5, "j": 16},
}


@pytest.mark.parametrize("text", DIMS)
def test_dims_of_the_command_line(text: str) -> None:
    """Ancestor rows 19 to 21: any name is a dim, and a value is what it looks like."""
    found = parse_dims(text).values
    assert found == DIMS[text]
    assert [type(v) for v in found.values()] == [type(v) for v in DIMS[text].values()]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'an empty entry' is not of the form name=value"),
        ("rows=1,", "is not of the form name=value"),
        ("rows", "'rows' is not of the form name=value"),
        ("rows=", "'rows=' is not of the form name=value"),
        ("=3", "a dim's name must be an identifier, and '' is none"),
        ("rows==3", "the value of `rows` '=3' is not a literal"),
        ("2x=3", "a dim's name must be an identifier"),
        ("a.b=3", "a dim's name must be an identifier"),
        ("--rows=3", "a dim's name must be an identifier"),
        ("rows=1,rows=2", "`rows` is given twice"),
        ("n=9**9**9", "more than 4096 bits"),
        ("n=1/0", "cannot be computed"),
        ("n=1e999", "is not a finite number"),
        ("n=1e999999999999", "is not a finite number"),
        ("n=f(3)", "calls a function"),
        ("n=__import__('os')", "calls a function"),
        ("n=[1", "is not a literal"),
        ("n='a b'", "a test id holds"),
        ("dtype=float17", "`float17` is no dtype: did you mean"),
        ("n=" + "(" * 300 + "1" + ")" * 300, "is not a literal"),
    ],
)
def test_wrong_dims_are_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(KernelError) as error:
        parse_dims(text)
    assert str(error.value).startswith("--kopt-dims ")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


@given(st.text(max_size=40))
def test_any_text_is_dims_or_one_error(text: str) -> None:
    try:
        case = parse_dims(text)
    except KernelError:
        return
    assert not set("=:[] ") & set(case.id)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_a_literal_is_read_as_python_reads_it(value: object) -> None:
    assert literals.parse(repr(value)) == value


def test_a_very_long_sum_is_a_literal_or_refused() -> None:
    assert literals.parse("+".join(["1"] * 100)) == 100
    tree: ast.expr = ast.Constant(1)
    for _ in range(50_000):
        tree = ast.BinOp(tree, ast.Add(), ast.Constant(1))
    with pytest.raises(literals.NotLiteral, match="is nested too deeply"):
        literals.evaluate(tree)


def test_whole_numbers_of_any_type_are_dims(tmp_path: Path) -> None:
    import numpy

    case = spec_of(tmp_path, "", conftest_cases=[{"rows": numpy.int64(4)}]).cases[0]
    assert (case.id, type(case.values["rows"])) == ("rows4", int)
