# Three outputs, each with its own shape: returned tensors bind to the output pointers in order.
import torch
from jaxtyping import Float
from torch import Tensor

cases = [
    {"rows": 64, "cols": 1024},
    {"rows": 3, "cols": 1000, "eps": 1e-3},
    {"rows": 9, "cols": 77},
    {"rows": 2, "cols": 8},
]
timed = [{"rows": 8192, "cols": 2048}]


def reference(
    x: Float[Tensor, "rows cols"], weight: Float[Tensor, "cols"], bias: Float[Tensor, "cols"], eps: float = 1e-5
) -> tuple[Float[Tensor, "rows cols"], Float[Tensor, "rows"], Float[Tensor, "rows"]]:
    mean = x.mean(dim=-1)
    centred = x - mean[:, None]
    rstd = torch.rsqrt(centred.square().mean(dim=-1) + eps)
    return centred * rstd[:, None] * weight + bias, mean, rstd


def bytes_moved(*, rows, cols, **_):
    return 4 * (2 * rows * cols + 2 * cols + 2 * rows)
