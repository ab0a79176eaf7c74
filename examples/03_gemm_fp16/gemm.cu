// A tiled GEMM on the tensor cores through WMMA: 128x128 tiles of C, two stages of A and B in shared memory, the next
// stage on its way in registers while this one is multiplied. Edge tiles are filled with zeros. n and k: multiples of 8.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

using namespace nvcuda;

constexpr int kTileM = 128, kTileN = 128, kTileK = 32;
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kPad = 8;  // halves a row, against bank conflicts
constexpr int kLoads = kTileM * kTileK / 8 / kThreads;  // 16-byte loads a thread, the same for A and for B
static_assert(kTileM == kTileN, "A and B tiles are loaded alike");

struct Stage {
    half a[kTileM][kTileK + kPad];
    half b[kTileK][kTileN + kPad];
};

// Eight neighbours of a row-major matrix, zeros outside it; col and cols are multiples of 8.
__device__ uint4 load8(const half* matrix, int row, int col, int rows, int cols) {
    if (row >= rows || col >= cols) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(matrix + static_cast<size_t>(row) * cols + col);
}

struct InFlight {
    uint4 a[kLoads], b[kLoads];

    __device__ void fetch(const half* a_matrix, const half* b_matrix, int row, int col, int depth, int m, int n, int k) {
        for (int i = 0; i < kLoads; ++i) {
            const int v = threadIdx.x + i * kThreads;
            a[i] = load8(a_matrix, row + v / (kTileK / 8), depth + v % (kTileK / 8) * 8, m, k);
            b[i] = load8(b_matrix, depth + v / (kTileN / 8), col + v % (kTileN / 8) * 8, k, n);
        }
    }
    __device__ void put(Stage& stage) const {
        for (int i = 0; i < kLoads; ++i) {
            const int v = threadIdx.x + i * kThreads;
            *reinterpret_cast<uint4*>(&stage.a[v / (kTileK / 8)][v % (kTileK / 8) * 8]) = a[i];
            *reinterpret_cast<uint4*>(&stage.b[v / (kTileN / 8)][v % (kTileN / 8) * 8]) = b[i];
        }
    }
};

__global__ void __launch_bounds__(kThreads) gemm(const half* a, const half* b, half* c, int m, int n, int k) {
    __shared__ alignas(32) Stage stages[2];
    __shared__ alignas(32) float staging[kWarps][16][16];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = blockIdx.y * kTileM, col = blockIdx.x * kTileN;
    const int warp_row = warp / 4 * 64, warp_col = warp % 4 * 32;  // each warp has 64x32 of the tile

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[4][2];
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j) wmma::fill_fragment(sum[i][j], 0.0f);

    InFlight next;
    next.fetch(a, b, row, col, 0, m, n, k);
    next.put(stages[0]);
    __syncthreads();
    const int steps = (k + kTileK - 1) / kTileK;
    for (int step = 0; step < steps; ++step) {
        if (step + 1 < steps) next.fetch(a, b, row, col, (step + 1) * kTileK, m, n, k);
        const Stage& now = stages[step % 2];
        for (int depth = 0; depth < kTileK; depth += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left[4];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right[2];
            for (int i = 0; i < 4; ++i) wmma::load_matrix_sync(left[i], &now.a[warp_row + 16 * i][depth], kTileK + kPad);
            for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(right[j], &now.b[depth][warp_col + 16 * j], kTileN + kPad);
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
        }
        if (step + 1 < steps) next.put(stages[(step + 1) % 2]);
        __syncthreads();
    }

    // A fragment's layout is not specified: through shared memory, then eight halves a lane.
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 2; ++j) {
            wmma::store_matrix_sync(&staging[warp][0][0], sum[i][j], 16, wmma::mem_row_major);
            __syncwarp();
            const int r = lane / 2, s = lane % 2 * 8;
            const int out_row = row + warp_row + 16 * i + r, out_col = col + warp_col + 16 * j + s;
            if (out_row < m && out_col < n) {
                alignas(16) half packed[8];
                for (int e = 0; e < 8; ++e) packed[e] = __float2half(staging[warp][r][s + e]);
                *reinterpret_cast<uint4*>(c + static_cast<size_t>(out_row) * n + out_col) = *reinterpret_cast<uint4*>(packed);
            }
            __syncwarp();
        }
    }
}

extern "C" cudaError_t solve(const half* a, const half* b, half* c, int m, int n, int k, cudaStream_t stream) {
    const dim3 blocks((n + kTileN - 1) / kTileN, (m + kTileM - 1) / kTileM);
    gemm<<<blocks, kThreads, 0, stream>>>(a, b, c, m, n, k);
    return cudaGetLastError();  // a status other than 0 fails the item
}
