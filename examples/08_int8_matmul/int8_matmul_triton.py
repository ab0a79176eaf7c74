# A quantised linear layer with `solve` in place of `run_kernel`: called with the reference's inputs alone, it takes the
# dims from their shapes and returns its result. `tl.dot` of int8 sums in int32, exactly.
import torch
import triton
import triton.language as tl


@triton.jit
def int8_matmul(a, w, a_scale, w_scale, c, m, n, k, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    row = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    col = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    left = a + row[:, None].to(tl.int64) * k + depth[None, :]
    right = w + col[None, :].to(tl.int64) * k + depth[:, None]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.int32)
    for done in range(0, k, TILE_K):
        inside = depth < k - done
        x = tl.load(left + done, mask=(row < m)[:, None] & inside[None, :], other=0)
        y = tl.load(right + done, mask=inside[:, None] & (col < n)[None, :], other=0)
        total = tl.dot(x, y, total, out_dtype=tl.int32)
    scale_row = tl.load(a_scale + row, mask=row < m, other=0.0)
    scale_col = tl.load(w_scale + col, mask=col < n, other=0.0)
    scaled = total.to(tl.float32) * scale_row[:, None] * scale_col[None, :]
    inside_c = (row < m)[:, None] & (col < n)[None, :]
    tl.store(c + row[:, None].to(tl.int64) * n + col[None, :], scaled.to(tl.float16), mask=inside_c)


def solve(a, w, a_scale, w_scale):
    (m, k), n = a.shape, w.shape[0]
    c = torch.empty((m, n), dtype=torch.float16, device=a.device)
    tile_m, tile_n, tile_k = 128, 128, 128
    grid = (triton.cdiv(m, tile_m), triton.cdiv(n, tile_n))
    int8_matmul[grid](a, w, a_scale, w_scale, c, m, n, k, TILE_M=tile_m, TILE_N=tile_n, TILE_K=tile_k, num_warps=8, num_stages=3)
    return c
