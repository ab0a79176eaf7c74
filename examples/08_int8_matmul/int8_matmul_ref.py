# Inputs with structure again: `make_inputs` quantises normal data row by row, as a real layer would.
# The sums of products are integers below 2**53, so float64 has them exactly.
import torch
from jaxtyping import Float16, Float32, Int8
from torch import Tensor

cases = [
    {"m": 128, "n": 192, "k": 64},
    {"m": 33, "n": 70, "k": 80},
    {"m": 1, "n": 1, "k": 16},
]
timed = [{"m": 2048, "n": 2048, "k": 2048}]
constraints = ["k % 16 == 0"]


def make_inputs(*, seed, device, m, n, k):
    generator = torch.Generator(device).manual_seed(seed)

    def quantised(rows):
        real = torch.randn(rows, k, generator=generator, device=device)
        scale = real.abs().amax(dim=1) / 127
        return (real / scale[:, None]).round().to(torch.int8), scale

    a, a_scale = quantised(m)
    w, w_scale = quantised(n)
    return {"a": a, "w": w, "a_scale": a_scale, "w_scale": w_scale}


def reference(
    a: Int8[Tensor, "m k"], w: Int8[Tensor, "n k"], a_scale: Float32[Tensor, "m"], w_scale: Float32[Tensor, "n"]
) -> Float16[Tensor, "m n"]:
    return (a.double() @ w.double().T) * a_scale[:, None] * w_scale


def flops(*, m, n, k):
    return 2 * m * n * k


def bytes_moved(*, m, n, k):
    return m * k + n * k + 4 * (m + n) + 2 * m * n
