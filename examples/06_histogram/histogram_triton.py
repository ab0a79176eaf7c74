# Counting in Triton: `tl.histogram` within a program, atomics between programs, after the result has been cleared.
import triton
import triton.language as tl


@triton.jit
def histogram(values, counts, n, bins, BLOCK: tl.constexpr, BINS: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    local = tl.histogram(tl.load(values + offsets, mask=inside, other=0), BINS, mask=inside)
    bin = tl.arange(0, BINS)
    tl.atomic_add(counts + bin, local, mask=(bin < bins) & (local != 0))


def run_kernel(values, counts, n, bins):
    block = 4096
    counts.zero_()
    histogram[(triton.cdiv(n, block),)](values, counts, n, bins, BLOCK=block, BINS=triton.next_power_of_2(bins))
