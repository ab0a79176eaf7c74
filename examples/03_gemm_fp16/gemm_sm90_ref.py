# Found by gemm_sm90_cutlass.cu: the stem without its `_cutlass`. TMA needs rows of whole 16-byte vectors, as said below.
from jaxtyping import Float16
from torch import Tensor

cases = [{"m": 512, "n": 256, "k": 128}, {"m": 129, "n": 136, "k": 40}, {"m": 1, "n": 8, "k": 8}]
timed = [{"m": 4096, "n": 4096, "k": 4096}]
constraints = ["n % 8 == 0", "k % 8 == 0"]


def reference(a: Float16[Tensor, "m k"], b: Float16[Tensor, "k n"]) -> Float16[Tensor, "m n"]:
    return a @ b


def flops(*, m, n, k):
    return 2 * m * n * k


def bytes_moved(*, m, n, k):
    return 2 * (m * k + k * n + m * n)
