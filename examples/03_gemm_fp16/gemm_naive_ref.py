# A reference of its own, found before any shared one: smaller timed dims than gemm_ref.py, and no constraints on them.
from jaxtyping import Float16
from torch import Tensor

cases = [{"m": 256, "n": 128, "k": 64}, {"m": 33, "n": 65, "k": 17}, {"m": 1, "n": 7, "k": 1}]
timed = [{"m": 1024, "n": 1024, "k": 1024}]


def reference(a: Float16[Tensor, "m k"], b: Float16[Tensor, "k n"]) -> Float16[Tensor, "m n"]:
    return a @ b


def flops(*, m, n, k):
    return 2 * m * n * k


def bytes_moved(*, m, n, k):
    return 2 * (m * k + k * n + m * n)
