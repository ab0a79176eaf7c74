# The usual shape of a Triton kernel under test: `run_kernel` takes the reference's inputs and dims by name,
# and what is left, `c`, is the output to write.
import triton
import triton.language as tl


@triton.jit
def vector_add(a, b, c, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    total = tl.load(a + offsets, mask=inside) + tl.load(b + offsets, mask=inside)
    tl.store(c + offsets, total, mask=inside)


def run_kernel(a, b, c, n):
    block = 2048
    vector_add[(triton.cdiv(n, block),)](a, b, c, n, BLOCK=block)
