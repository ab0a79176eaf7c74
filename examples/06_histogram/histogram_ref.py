# `make_inputs` in place of generated inputs: random int32 would index far outside the bins.
import torch
from jaxtyping import Int32
from torch import Tensor

cases = [{"n": 1 << 16, "bins": 256}, {"n": 10_007, "bins": 100}, {"n": 3, "bins": 7}, {"n": 1, "bins": 1}]
timed = [{"n": 1 << 24, "bins": 256}]
constraints = ["bins <= 1024"]


def make_inputs(*, seed, device, n, bins):
    generator = torch.Generator(device).manual_seed(seed)
    return {"values": torch.randint(bins, (n,), generator=generator, dtype=torch.int32, device=device)}


def reference(values: Int32[Tensor, "n"], bins: int) -> Int32[Tensor, "bins"]:
    return torch.bincount(values, minlength=bins).to(torch.int32)


def bytes_moved(*, n, bins):
    return 4 * (n + bins)
