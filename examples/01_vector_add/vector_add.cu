// The smallest kernel under test: pointers are tensors, `n` is a dim, the non-const pointer is the output.
// Each thread adds four elements by 16-byte accesses; the last n % 4 go to the first threads of the grid.
#include <cuda_runtime.h>

__global__ void vector_add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int vectors = n / 4;
    if (i < vectors) {
        const float4 u = reinterpret_cast<const float4*>(a)[i];
        const float4 v = reinterpret_cast<const float4*>(b)[i];
        reinterpret_cast<float4*>(c)[i] = make_float4(u.x + v.x, u.y + v.y, u.z + v.z, u.w + v.w);
    }
    if (i < n % 4) {
        const int tail = 4 * vectors + i;
        c[tail] = a[tail] + b[tail];
    }
}

extern "C" void solve(const float* a, const float* b, float* c, int n) {
    const int threads = 256;
    const int blocks = n / (4 * threads) + 1;
    vector_add<<<blocks, threads>>>(a, b, c, n);
}
