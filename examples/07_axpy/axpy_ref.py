# An operand that is read and written: `inout` says so, and the returned tensor is what it should hold afterwards.
from jaxtyping import Float
from torch import Tensor

cases = [{"n": 1 << 16, "alpha": 0.5}, {"n": 10_007, "alpha": -3.25}, {"n": 3, "alpha": 0.0}]
timed = [{"n": 1 << 24, "alpha": 0.5}]
inout = ["y"]


def reference(x: Float[Tensor, "n"], y: Float[Tensor, "n"], alpha: float) -> Float[Tensor, "n"]:
    return alpha * x + y


def flops(*, n, **_):
    return 2 * n


def bytes_moved(*, n, **_):
    return 3 * 4 * n
