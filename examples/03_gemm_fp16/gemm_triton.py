# A tiled GEMM under `@triton.autotune`: which of the configurations runs is found by timing them at the first launch
# with new dims; the build reports registers and shared memory of each. Programs go over C in groups of rows, for L2.
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE_M": 128, "TILE_N": 128, "TILE_K": 64}, num_warps=4, num_stages=3),
    triton.Config({"TILE_M": 128, "TILE_N": 256, "TILE_K": 64}, num_warps=8, num_stages=3),
    triton.Config({"TILE_M": 64, "TILE_N": 64, "TILE_K": 64}, num_warps=4, num_stages=4),
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.jit
def gemm(a, b, c, m, n, k, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr):
    tiles_n = tl.cdiv(n, TILE_N)
    group = tl.program_id(0) // (GROUP * tiles_n)
    rows_here = tl.minimum(tl.cdiv(m, TILE_M) - group * GROUP, GROUP)
    within = tl.program_id(0) % (GROUP * tiles_n)
    row = (group * GROUP + within % rows_here) * TILE_M + tl.arange(0, TILE_M)[:, None]
    col = (within // rows_here) * TILE_N + tl.arange(0, TILE_N)[None, :]
    depth = tl.arange(0, TILE_K)

    # 64-bit offsets of the tiles: m * k and k * n may pass 2**31.
    left = a + row.to(tl.int64) * k + depth[None, :]
    right = b + depth[:, None].to(tl.int64) * n + col
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for done in range(0, k, TILE_K):
        inside = depth < k - done
        x = tl.load(left, mask=(row < m) & inside[None, :], other=0.0)
        y = tl.load(right, mask=inside[:, None] & (col < n), other=0.0)
        total = tl.dot(x, y, total)
        left += TILE_K
        right += TILE_K * n
    tl.store(c + row.to(tl.int64) * n + col, total.to(tl.float16), mask=(row < m) & (col < n))


def run_kernel(a, b, c, m, n, k):
    def grid(config):
        return (triton.cdiv(m, config["TILE_M"]) * triton.cdiv(n, config["TILE_N"]),)

    gemm[grid](a, b, c, m, n, k, GROUP=8)
