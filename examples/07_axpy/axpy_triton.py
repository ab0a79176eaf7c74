# y = alpha * x + y in place, with a float scalar: all four parameters are the reference's, and `y` is its inout.
import triton
import triton.language as tl


@triton.jit
def axpy(x, y, alpha, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    updated = alpha * tl.load(x + offsets, mask=inside) + tl.load(y + offsets, mask=inside)
    tl.store(y + offsets, updated, mask=inside)


def run_kernel(x, y, alpha, n):
    block = 2048
    axpy[(triton.cdiv(n, block),)](x, y, alpha, n, BLOCK=block)
