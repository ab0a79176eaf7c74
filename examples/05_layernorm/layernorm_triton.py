# LayerNorm with three outputs that `run_kernel` allocates and returns, in the order of the reference's.
import torch
import triton
import triton.language as tl


@triton.jit
def layernorm(x, weight, bias, y, mean, rstd, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * cols
    col = tl.arange(0, BLOCK)
    inside = col < cols
    held = tl.load(x + start + col, mask=inside, other=0.0)
    centre = tl.sum(held, axis=0) / cols
    centred = tl.where(inside, held - centre, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / cols + eps)
    gain = tl.load(weight + col, mask=inside)
    shift = tl.load(bias + col, mask=inside)
    tl.store(y + start + col, centred * scale * gain + shift, mask=inside)
    tl.store(mean + row, centre)
    tl.store(rstd + row, scale)


def run_kernel(x, weight, bias, rows, cols, eps=1e-5):
    y = torch.empty_like(x)
    mean = torch.empty(rows, dtype=x.dtype, device=x.device)
    rstd = torch.empty_like(mean)
    block = triton.next_power_of_2(cols)
    layernorm[(rows,)](x, weight, bias, y, mean, rstd, cols, eps, BLOCK=block, num_warps=min(max(block // 512, 1), 16))
    return y, mean, rstd
