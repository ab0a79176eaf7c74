# For gemm.cu, gemm_cutlass.cu and gemm_triton.py. `constraints` says which dims the operator is asked for at all:
# rows of B and C, and rows of A, that are whole 16-byte vectors.
from jaxtyping import Float16
from torch import Tensor

cases = [
    {"m": 256, "n": 128, "k": 64},
    {"m": 129, "n": 136, "k": 40},  # every tile is cut off somewhere
    {"m": 1, "n": 8, "k": 8},
    {"m": 64, "n": 256, "k": 1000},
]
timed = [{"m": 4096, "n": 4096, "k": 4096}]
constraints = ["n % 8 == 0", "k % 8 == 0"]


def reference(a: Float16[Tensor, "m k"], b: Float16[Tensor, "k n"]) -> Float16[Tensor, "m n"]:
    return a @ b


def flops(*, m, n, k):
    return 2 * m * n * k


def bytes_moved(*, m, n, k):
    return 2 * (m * k + k * n + m * n)
