"""Public reports of area signature, as kernels and references of the same shape as those of the reports (SIG-01 to SIG-29).

What a `.cu` needs of them is bound; the same operators in Triton run in the interpreter.
"""

from __future__ import annotations

import ctypes
import runpy
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from bound_files import Files, scalars, tensors
from evaluating import Kernels, kernels

from pytest_kernelopt.core.build import Cache, build
from pytest_kernelopt.core.errors import KernelError, Unavailable
from pytest_kernelopt.core.isolate import worker
from pytest_kernelopt.core.isolate.child import ChildState
from pytest_kernelopt.core.spec import load, parse_dims
from pytest_kernelopt.core.timing import floors
from pytest_kernelopt.core.toolchain import Target, Toolchain

TEMPLATE = Path(__file__).parents[2] / "conftest_templates" / "challenge_classes" / "challenge_inputs.py"
HEAD = "import triton\nimport triton.language as tl\n"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    with kernels(tmp_path_factory.mktemp("cache")) as found:
        yield found


CLIP = """\
#include <cstring>
extern "C" void solve(const float* input, float* output, float lo, const float hi, int N) {
    std::memcpy(output, &lo, 4);
    std::memcpy(output + 1, &hi, 4);
    for (int i = 2; i < N; ++i) output[i] = input[i] < lo ? lo : input[i] > hi ? hi : input[i];
}
"""
CLIP_REF = (
    'def reference(input: Float[Tensor, "N"], lo: float, hi: float) -> Float[Tensor, "N"]:\n    return input.clamp(lo, hi)\n'
)


def test_a_float_by_value_is_given_in_a_case_and_reaches_c_as_a_float(files: Files, tmp_path: Path) -> None:
    """SIG-01: negative and small, as the command line writes it; a solve() that needs no GPU looks at its bits."""
    toolchain = Toolchain.find()
    if toolchain.nvcc is None:
        pytest.skip(toolchain.nvcc_missing)
    import torch

    case = parse_dims("lo=-1.5,hi=1e-5,N=2**4")
    signature = CLIP[CLIP.index("(") + 1 : CLIP.index(")")]
    problem = files.cuda(signature, CLIP_REF, **case.values)
    assert scalars(problem) == {"lo": -1.5, "hi": 1e-5, "N": 16}
    assert [a.dtype for a in problem.arguments if a.kind == "scalar"] == ["float32", "float32", "int32"]
    (tmp_path / "clip.cu").write_text(CLIP)
    artifact = build(load(tmp_path / "clip.cu"), Target(), toolchain, Cache(tmp_path / "cache"))
    state = ChildState("interpreter", tmp_path)
    worker.load_library(state, path=str(artifact.path), entry="solve", returns_status=False)
    sets = {"input": torch.linspace(-4, 4, 16), "output": torch.empty(16)}
    state.objects["sets"] = [sets]
    worker.prepare(state, arguments=problem.to_json()["arguments"], returned=[])
    state.objects["calls"][0]()
    assert state.objects["function"].argtypes[2:] == [ctypes.c_float, ctypes.c_float, ctypes.c_int32]
    assert sets["output"][:2].tolist() == list(struct.unpack("ff", struct.pack("ff", -1.5, 1e-5)))
    assert sets["output"][2:].tolist() == sets["input"][2:].clamp(-1.5, 1e-5).tolist()


GEMM = (
    HEAD
    + """
@triton.jit
def gemm(a, b, c, alpha, beta, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    product = tl.dot(tl.load(a + m * K + k[None, :]), tl.load(b + k[:, None] * N + n))
    at = c + m * N + n
    tl.store(at, (alpha * product + beta * tl.load(at)).to(tl.float16))

def run_kernel(A, B, C, M, N, K, alpha, beta):
    gemm[(1,)](A, B, C, alpha, beta, M, N, K)
"""
)
GEMM_REF = """
cases = [{"M": 16, "N": 32, "K": 16, "alpha": 1, "beta": 0.5}]

def reference(A: Float[Tensor, "M K"], B: Float[Tensor, "K N"], C: Float[Tensor, "M N"], alpha: float, beta: float
              ) -> Float[Tensor, "M N"]:
    return alpha * (A @ B) + beta * C
"""
INOUT = '\ninout = ["C"]  # Triton has no const that would tell\n'


def test_a_result_that_is_read_too_has_its_start_value_before_every_call(files: Files, asked: Kernels, tmp_path: Path) -> None:
    """SIG-03: alpha and beta, half, and C as the same random numbers for the kernel and its reference in every trial."""
    signature = "const half* A, const half* B, half* C, int M, int N, int K, float alpha, float beta"
    problem = files.cuda(signature, GEMM_REF, M=16, N=32, K=16, alpha=1, beta=0.5)
    assert tensors(problem)["C"] == ("inout", "float16", (16, 32))
    reference = GEMM_REF.replace("Float[", "Float16[") + INOUT
    record = asked.ask(asked.write(tmp_path / "right", GEMM, reference))
    assert record.verdict == "passed", record.message
    assert len(record.seeds) >= 3
    forgets = asked.write(tmp_path / "wrong", GEMM.replace(" + beta * tl.load(at)", ""), reference)
    assert asked.ask(forgets).kind == "wrong values"


KMEANS = """
    def reference(data_x: Float[Tensor, "n"], data_y: Float[Tensor, "n"], labels: Int[Tensor, "n"],
                  initial_centroid_x: Float[Tensor, "k"], initial_centroid_y: Float[Tensor, "k"],
                  final_centroid_x: Float[Tensor, "k"], final_centroid_y: Float[Tensor, "k"], steps: int) -> None:
        x, y = initial_centroid_x.clone(), initial_centroid_y.clone()
        for _ in range(steps):
            near = ((data_x[:, None] - x) ** 2 + (data_y[:, None] - y) ** 2).argmin(1)
            for j in range(len(x)):
                if (near == j).any():
                    x[j], y[j] = data_x[near == j].mean(), data_y[near == j].mean()
        labels.copy_(near)
        final_centroid_x.copy_(x)
        final_centroid_y.copy_(y)
"""


def test_a_reference_that_writes_in_place_tells_inputs_without_const_from_outputs(files: Files) -> None:
    """SIG-05: what it changes is an output, and the rest is neither filled with poison nor compared."""
    problem = files.cuda(
        "const float* data_x, const float* data_y, int* labels, float* initial_centroid_x, float* initial_centroid_y, "
        "float* final_centroid_x, float* final_centroid_y, int n, int k, int steps",
        KMEANS, n=200, k=3, steps=4,
    )  # fmt: skip
    assert {t.name: t.role for t in problem.tensors} == {
        "data_x": "input", "data_y": "input", "labels": "output",
        "initial_centroid_x": "input", "initial_centroid_y": "input",
        "final_centroid_x": "output", "final_centroid_y": "output",
    }  # fmt: skip


SQUARE = 'def reference(A: Float[Tensor, "N N"], B: Float[Tensor, "N N"]) -> Float[Tensor, "N N"]:\n    return A + B\n'
MATRIX_ADD = (
    HEAD
    + """
@triton.jit
def add(a, b, c, total, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c + i, tl.load(a + i, mask=i < total) + tl.load(b + i, mask=i < total), mask=i < total)

def run_kernel(A, B, C, N):
    add[(triton.cdiv(N * N, 64),)](A, B, C, N * N, BLOCK=64)
"""
)


def test_every_pointer_has_the_size_that_the_reference_gives_it(files: Files) -> None:
    """SIG-07, SIG-09: not the product of the two largest dims; bytes moved are those of the tensors."""
    problem = files.cuda("const float* A, const float* B, float* C, int N", SQUARE, N=4096)
    assert {t.shape for t in problem.tensors} == {(4096, 4096)}
    assert [a.name for a in problem.arguments] == ["A", "B", "C", "N"]
    windows = """
        def reference(input: Int[Tensor, "N"], window_size: int) -> Int[Tensor, "1"]:
            return input.unfold(0, window_size, 1).sum(1).max().reshape(1)
    """
    problem = files.cuda("const int* input, int* output, int N, int window_size", windows, N=50_000, window_size=25_000)
    assert tensors(problem) == {"input": ("input", "int32", (50_000,)), "output": ("output", "int32", (1,))}
    assert sum(floors.tensor_bytes(t) for t in problem.tensors) == 4 * 50_001
    assert not problem.guessed_sizes


def test_a_guessed_size_that_is_too_small_is_found_and_named(asked: Kernels, tmp_path: Path) -> None:
    """SIG-07 without any declaration: N elements are guessed where the kernel rightly writes N * N."""
    plain = 'cases = [{"N": 16}]\n\ndef reference(A, B, C, N):\n    C.copy_(A + B)\n'
    record = asked.ask(asked.write(tmp_path / "guessed", MATRIX_ADD, plain))
    assert (record.verdict, record.kind) == ("failed", "out of bounds write"), record.message
    assert any("the sizes of A, B, C were guessed: annotate the parameters" in w for w in record.warnings)
    declared = asked.write(tmp_path / "declared", MATRIX_ADD, 'cases = [{"N": 16}]\n\n' + SQUARE)
    assert asked.ask(declared).verdict == "passed"


EMBED = (
    HEAD
    + """
@triton.jit
def embed(ids, table, out, WIDTH: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, WIDTH)
    tl.store(out + row * WIDTH + col, tl.load(table + tl.load(ids + row) * WIDTH + col))

def run_kernel(token_ids, table, output, T):
    embed[(T,)](token_ids, table, output, WIDTH=8)
"""
)
EMBED_REF = """
cases = [{"T": 40, "vocabulary": VOCABULARY}]

def reference(token_ids: Int32[Tensor, "T"], table: Float[Tensor, "vocabulary 8"]) -> Float[Tensor, "T 8"]:
    return table[token_ids]
"""
RANGE = """
def make_inputs(*, seed, device, T, vocabulary):
    generator = torch.Generator(device).manual_seed(seed)
    return {"token_ids": torch.randint(vocabulary, (T,), generator=generator, device=device)}
"""


def test_indices_are_small_unless_declared_and_one_out_of_range_is_no_fault_of_the_kernel(asked: Kernels, tmp_path: Path) -> None:
    """SIG-11; an assert on the device is in tests/gpu."""
    usual = asked.write(tmp_path / "usual", EMBED, EMBED_REF.replace("VOCABULARY", "10"))
    assert asked.ask(usual).verdict == "passed"
    for vocabulary in (3, 5000):
        declared = EMBED_REF.replace("VOCABULARY", str(vocabulary)) + RANGE
        assert asked.ask(asked.write(tmp_path / f"declared{vocabulary}", EMBED, declared)).verdict == "passed"
    small = asked.write(tmp_path / "small", EMBED, EMBED_REF.replace("VOCABULARY", "3"))
    with pytest.raises(KernelError, match=r"op_ref\.py:8: .*IndexError.*define make_inputs\(\) if they are indices"):
        asked.ask(small)
    assert asked.ask(usual).verdict == "passed"


COMPACT = (
    HEAD
    + """
@triton.jit
def compact(x, n, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n, other=-1.0)
    kept = (value > 0).to(tl.int32)
    tl.store(out + tl.cumsum(kept, 0) - 1, value, mask=kept == 1)

def run_kernel(A, N, out):
    compact[(1,)](A, N, out, BLOCK=128)
"""
)
COMPACT_REF = """
cases = [{"N": 100}]

def reference(A: Float[Tensor, "N"], out: Float[Tensor, "N"]) -> None:
    kept = A[A > 0]
    out[: len(kept)] = kept
"""
ZEROS = """
inout = ["out"]

def make_inputs(*, seed, device, N):
    return {"out": torch.zeros(N, device=device)}
"""


def test_a_declared_start_value_takes_the_place_of_the_poison(asked: Kernels, files: Files, tmp_path: Path) -> None:
    """SIG-13: only the first part of the output is written, and the rest stays what it was before: zero."""
    signature = "const float* A, int N, float* out"
    for more in ("", ZEROS, ZEROS.replace('inout = ["out"]\n', "")):
        problem = files.cuda(signature, COMPACT_REF + more, N=100)
        assert tensors(problem)["out"] == ("inout", "float32", (100,))
        assert [a.name for a in problem.arguments] == ["A", "N", "out"]
    right = asked.write(tmp_path / "right", COMPACT, COMPACT_REF + ZEROS)
    record = asked.ask(right)
    assert record.verdict == "passed", record.message
    import torch

    out = asked.evaluator.run(right, right.cases[0])["out"]
    assert 0 < torch.count_nonzero(out) < 100
    assert torch.equal(out, asked.evaluator.expected(right, right.cases[0])["out"])
    fills = asked.write(tmp_path / "wrong", COMPACT.replace("mask=kept == 1", "mask=i < n"), COMPACT_REF + ZEROS)
    assert asked.ask(fills).verdict == "failed"


def test_a_kernel_that_does_nothing_is_found_where_zero_is_the_right_answer(asked: Kernels, tmp_path: Path) -> None:
    """SIG-15. One that writes the constant is for the test of weak tests, which comes with the referee."""
    reference = """
        cases = [{"N": 1000, "K": 501}]

        def reference(input: Int32[Tensor, "N"], K: int) -> Int32[Tensor, "1"]:
            return (input == K).sum().to(torch.int32).reshape(1)
    """
    record = asked.ask(asked.write(tmp_path, "def run_kernel(input, output, N, K):\n    pass\n", reference))
    assert (record.verdict, record.kind) == ("failed", "never written"), record.message


SORT = (
    HEAD
    + """
@triton.jit
def sort(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    mine, other = value[:, None], value[None, :]
    before = (other < mine) | ((other == mine) & (i[None, :] < i[:, None]))
    tl.store(y + tl.sum(before.to(tl.int32), axis=1), value)

def run_kernel(input, output, N):
    sort[(1,)](input, output, N)
"""
)
SORT_REF = """
from jaxtyping import UInt32

cases = [{"N": 64}]

def make_inputs(*, seed, device, N):
    generator = torch.Generator(device).manual_seed(seed)
    return {"input": torch.randint(2**32, (N,), generator=generator, device=device)}

def reference(input: UInt32[Tensor, "N"]) -> UInt32[Tensor, "N"]:
    return input.to(torch.int64).sort().values
"""


def test_unsigned_32_bits_are_made_and_compared_through_64(asked: Kernels, tmp_path: Path) -> None:
    """SIG-17: values above 2**31, which torch neither draws nor sorts in their own type."""
    right = asked.write(tmp_path / "right", SORT, SORT_REF)
    record = asked.ask(right)
    assert record.verdict == "passed", record.message
    output = asked.evaluator.run(right, right.cases[0])["output"]
    assert str(output.dtype) == "torch.uint32"
    assert max(output.tolist()) > 2**31
    reversed_ = asked.write(tmp_path / "wrong", SORT.replace("other < mine", "other > mine"), SORT_REF)
    record = asked.ask(reversed_)
    assert record.kind == "wrong values"
    assert int(record.outputs[0].got or -1) > 2**31, "printed as unsigned"


def test_one_reference_answers_to_both_starters_of_a_challenge(files: Files, asked: Kernels, tmp_path: Path) -> None:
    """SIG-19, SIG-29: the `.cu` says A, B, C and N, the Triton file a, b, c and n, and has only a solve()."""
    reference = SQUARE.replace("N N", "N")
    problem = files.cuda("const float* A, const float* B, float* C, int N", reference, N=100)
    assert problem.call
    assert problem.call.tensors == (("A", "A"), ("B", "B"))
    source = HEAD + (
        "@triton.jit\ndef add(a, b, c, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(c + i, tl.load(a + i, mask=i < n) + tl.load(b + i, mask=i < n), mask=i < n)\n\n"
        "def solve(a, b, c, n: int):\n    add[(triton.cdiv(n, 64),)](a, b, c, n, BLOCK=64)\n"
    )
    record = asked.ask(asked.write(tmp_path / "triton", source, 'cases = [{"N": 100}]\n' + reference))
    assert record.verdict == "passed", record.message


CHALLENGE = """
class Lazy:
    def __init__(self, shape, dtype="float32", **parameters):
        self.shape, self.dtype = tuple(shape), dtype
        vars(self).update(parameters)

class Challenge:
    def get_solve_signature(self):
        return {"A": (None, "in"), "B": (None, "in"), "C": (None, "out"), "M": (None, "in"), "N": (None, "in"), "K": (None, "in")}

    def reference_impl(self, A, B, C, M, N, K):
        assert A.shape == (M, N), A.shape
        assert B.shape == (N, K), B.shape
        assert C.shape == (M, K), C.shape
        C.copy_(A @ B)

class Older(Challenge):
    def generate_performance_test(self):
        dims = {"M": 16, "N": 32, "K": 64}
        return {"A": torch.rand(16, 32), "B": torch.randn(32, 64), "C": torch.empty(16, 64), **dims}

class Newer(Challenge):
    def generate_performance_test(self):
        dims = {"M": 16, "N": 32, "K": 64}
        return {"A": Lazy((16, 32), low=-2.0, high=2.0), "B": Lazy((32, 64), mean=1.0, std=2.0), "C": Lazy((16, 64)), **dims}
"""
DELEGATES = """
from challenge_inputs import challenge_inputs

cases = [{"M": 16, "N": 32, "K": 64}]

def make_inputs(*, seed, device, **dims):
    return challenge_inputs(CLASS(), seed=seed, device=device, dims=dims)

def reference(A: Float[Tensor, "M N"], B: Float[Tensor, "N K"], C: Float[Tensor, "M K"], M: int, N: int, K: int) -> None:
    CLASS().reference_impl(A, B, C, M, N, K)
"""
MATMUL = (
    HEAD
    + """
@triton.jit
def matmul(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, K)[None, :]
    product = tl.dot(tl.load(a + m * N + n[None, :]), tl.load(b + n[:, None] * K + k))
    tl.store(c + m * K + k, product)

def solve(a, b, c, M, N, K):
    matmul[(1,)](a, b, c, M, N, K)
"""
)


@pytest.mark.parametrize("kind", ["Older", "Newer"])
def test_a_challenge_class_is_a_reference(asked: Kernels, tmp_path: Path, kind: str) -> None:
    """SIG-21, SIG-23: shaped views for what asserts on shapes; tensors and descriptions of tensors as inputs, seeded."""
    (tmp_path / "challenge_inputs.py").write_bytes(TEMPLATE.read_bytes())
    spec = asked.write(tmp_path, MATMUL, CHALLENGE + DELEGATES.replace("CLASS", kind))
    record = asked.ask(spec)
    assert record.verdict == "passed", record.message
    assert record.outputs[0].shape == (16, 64)


def test_descriptions_of_tensors_become_tensors_of_their_distribution(tmp_path: Path) -> None:
    """SIG-23: every kind there is, the same for the same seed, and without touching the global generator."""
    import torch

    challenge_inputs = runpy.run_path(str(TEMPLATE))["challenge_inputs"]
    (tmp_path / "challenge.py").write_text("import torch\n" + CHALLENGE)
    classes = runpy.run_path(str(tmp_path / "challenge.py"))
    lazy, newer = classes["Lazy"], classes["Newer"]
    test = {
        "A": lazy((1000,), low=3.0, high=4.0),
        "B": lazy((1000,), "int32", low=7, high=9),
        "C": lazy((5,)),
        "D": lazy((5,), "float16", value=2.0),
        "E": lazy((1000,), mean=50.0, std=1.0),
        "N": 32,
    }
    before = torch.random.get_rng_state()
    first, again, other = (challenge_inputs(newer(), seed=s, device="cpu", dims={"N": 32}, test=test) for s in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert list(first) == ["A", "B", "D", "E"]
    assert bool(((first["A"] >= 3) & (first["A"] < 4)).all())
    assert set(first["B"].tolist()) == {7, 8}
    assert first["D"].tolist() == [2.0] * 5
    assert abs(float(first["E"].mean()) - 50) < 1
    assert all(torch.equal(first[n], again[n]) for n in first)
    assert not torch.equal(first["A"], other["A"])
    with pytest.raises(ValueError, match="the challenge's test has N=32, and the case says 8"):
        challenge_inputs(newer(), seed=1, device="cpu", dims={"N": 8}, test=test)


def test_a_solve_alone_says_which_reference_it_needs(asked: Kernels, tmp_path: Path) -> None:
    """SIG-29: nothing in silence: what was looked for is named, and nothing passes unverified."""
    spec = asked.write(tmp_path, MATMUL, None, name="relu")
    record = asked.ask(spec)
    assert record.verdict == "unverified"
    assert record.message == "no reference: looked for relu_triton_ref.py, relu_ref.py"
    with pytest.raises(Unavailable, match=r"no inputs to compile it for: no reference \(relu_triton_ref\.py, relu_ref\.py\)"):
        asked.evaluator.build(spec)
