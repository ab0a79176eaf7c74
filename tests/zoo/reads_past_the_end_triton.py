import triton
import triton.language as tl


@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i + 44, mask=i < n) * 2, mask=i < n)  # the wrong end of x


def run_kernel(x, y):
    twice[(3,)](x, y, 300, BLOCK=128)
