// A quantised linear layer: int8 activations (m, k) and weights (n, k), exact int32 sums by DP4A, one scale a row of each,
// half out. 64x64 tiles, 4x4 outputs a thread; four int8 travel as one int. k is a multiple of 16.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

constexpr int kTile = 64;           // rows of A and of W
constexpr int kDepth = 16;          // ints, 64 int8
constexpr int kStride = kTile + 4;  // keeps 16-byte alignment, spreads the banks

// 16 int8 of a row as four ints, zeros outside the matrix.
__device__ int4 load16(const int8_t* matrix, int row, int col, int rows, int cols) {
    if (row >= rows || col >= cols) return make_int4(0, 0, 0, 0);
    return *reinterpret_cast<const int4*>(matrix + static_cast<size_t>(row) * cols + col);
}

__global__ void __launch_bounds__(256)
    int8_matmul(const int8_t* __restrict__ a, const int8_t* __restrict__ w, const float* __restrict__ a_scale,
                const float* __restrict__ w_scale, half* __restrict__ c, int m, int n, int k) {
    __shared__ alignas(16) int a_tile[kDepth][kStride];  // depth first: a thread's four rows are neighbours
    __shared__ alignas(16) int w_tile[kDepth][kStride];
    const int row = blockIdx.y * kTile, col = blockIdx.x * kTile;
    const int load_row = threadIdx.x / 4, load_chunk = threadIdx.x % 4;
    const int ty = threadIdx.x / 16 * 4, tx = threadIdx.x % 16 * 4;

    int sum[4][4] = {};
    for (int depth = 0; depth < k; depth += 4 * kDepth) {
        const int4 u = load16(a, row + load_row, depth + 16 * load_chunk, m, k);
        const int4 v = load16(w, col + load_row, depth + 16 * load_chunk, n, k);
        const int us[4] = {u.x, u.y, u.z, u.w}, vs[4] = {v.x, v.y, v.z, v.w};
        for (int i = 0; i < 4; ++i) {
            a_tile[4 * load_chunk + i][load_row] = us[i];
            w_tile[4 * load_chunk + i][load_row] = vs[i];
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < kDepth; ++d) {
            const int4 p = *reinterpret_cast<const int4*>(&a_tile[d][ty]);
            const int4 q = *reinterpret_cast<const int4*>(&w_tile[d][tx]);
            const int ps[4] = {p.x, p.y, p.z, p.w}, qs[4] = {q.x, q.y, q.z, q.w};
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) sum[i][j] = __dp4a(ps[i], qs[j], sum[i][j]);
        }
        __syncthreads();
    }

    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            const int r = row + ty + i, s = col + tx + j;
            if (r < m && s < n) c[static_cast<size_t>(r) * n + s] = __float2half(sum[i][j] * a_scale[r] * w_scale[s]);
        }
    }
}

extern "C" void solve(const int8_t* a, const int8_t* w, const float* a_scale, const float* w_scale, half* c, int m,
                      int n, int k, cudaStream_t stream) {
    const dim3 blocks((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
    int8_matmul<<<blocks, 256, 0, stream>>>(a, w, a_scale, w_scale, c, m, n, k);
}
