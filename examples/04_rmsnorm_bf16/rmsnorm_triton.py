# RMSNorm in bfloat16, one program a row. Triton's interpreter computes bfloat16 wrongly, so without a GPU this kernel
# is built and not run, and its items say so.
import triton
import triton.language as tl


@triton.jit
def rmsnorm(x, weight, y, cols, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    col = tl.arange(0, BLOCK)
    inside = col < cols
    row = tl.load(x + start + col, mask=inside, other=0.0).to(tl.float32)
    gain = tl.load(weight + col, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(row * row, axis=0) / cols + eps)
    tl.store(y + start + col, (row * scale * gain).to(tl.bfloat16), mask=inside)


def run_kernel(x, weight, y, rows, cols):
    block = triton.next_power_of_2(cols)
    rmsnorm[(rows,)](x, weight, y, cols, 1e-6, BLOCK=block, num_warps=min(max(block // 512, 1), 16))
