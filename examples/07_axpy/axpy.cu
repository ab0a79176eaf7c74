// y = alpha * x + y in place: `alpha` is a by-value float that the case names, and the reference declares `y` as inout,
// so every timed call and every seed starts from a fresh `y`.
#include <cuda_runtime.h>

__global__ void axpy(const float* __restrict__ x, float* __restrict__ y, float alpha, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int vectors = n / 4;
    if (i < vectors) {
        const float4 u = reinterpret_cast<const float4*>(x)[i];
        float4 v = reinterpret_cast<float4*>(y)[i];
        v.x = fmaf(alpha, u.x, v.x);
        v.y = fmaf(alpha, u.y, v.y);
        v.z = fmaf(alpha, u.z, v.z);
        v.w = fmaf(alpha, u.w, v.w);
        reinterpret_cast<float4*>(y)[i] = v;
    }
    if (i < n % 4) {
        const int tail = 4 * vectors + i;
        y[tail] = fmaf(alpha, x[tail], y[tail]);
    }
}

extern "C" void solve(const float* x, float* y, float alpha, int n, cudaStream_t stream) {
    const int threads = 256;
    const int blocks = n / (4 * threads) + 1;
    axpy<<<blocks, threads, 0, stream>>>(x, y, alpha, n);
}
