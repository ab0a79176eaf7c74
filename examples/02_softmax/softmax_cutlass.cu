// Row softmax in CuTe, one warp a row: layouts say who holds which columns, a tiled copy moves them 16 bytes at a time,
// and an identity tensor tells each thread where it is. Maximum and sum come from one pass (online softmax).
#include <cuda_runtime.h>
#include <math_constants.h>

#include <cute/tensor.hpp>

using namespace cute;

constexpr int kWarps = 4;

template <int V>
__global__ void __launch_bounds__(32 * kWarps) softmax(const float* x, float* y, int rows, int cols) {
    const auto shape = make_shape(rows, cols);
    const auto row_major = make_layout(shape, make_stride(static_cast<int64_t>(cols), _1{}));
    const auto tile = Shape<Int<kWarps>, Int<32 * V>>{};
    const auto mine = make_coord(blockIdx.x, _);

    const auto tiled_copy = make_tiled_copy(Copy_Atom<UniversalCopy<uint_bit_t<32 * V>>, float>{},
                                            Layout<Shape<Int<kWarps>, _32>, Stride<_32, _1>>{},  // warps down, lanes along
                                            Layout<Shape<_1, Int<V>>>{});                        // V columns a lane
    const auto thread = tiled_copy.get_slice(threadIdx.x);
    const Tensor in = thread.partition_S(local_tile(make_tensor(make_gmem_ptr(x), row_major), tile, mine));
    Tensor out = thread.partition_D(local_tile(make_tensor(make_gmem_ptr(y), row_major), tile, mine));
    const Tensor where = thread.partition_S(local_tile(make_identity_tensor(shape), tile, mine));  // (V, 1, 1, tiles)
    const int tiles = size<3>(in);
    if (get<0>(where(0, 0, 0, 0)) >= rows) return;  // the same for a whole warp

    // V divides cols, so a thread's V columns of one tile lie all inside or all outside.
    Tensor held = make_fragment_like(in(_, _, _, 0));
    auto load = [&](int t) {
        if (elem_less(where(0, 0, 0, t), shape)) {
            copy(tiled_copy, in(_, _, _, t), held);
        } else {
            fill(held, -CUDART_INF_F);
        }
    };

    float peak = -CUDART_INF_F;
    float sum = 0.0f;
    for (int t = 0; t < tiles; ++t) {
        load(t);
        float next = peak;
        for (int i = 0; i < size(held); ++i) next = fmaxf(next, held(i));
        const float shift = next == -CUDART_INF_F ? 0.0f : next;  // -inf minus -inf would be NaN
        sum *= expf(peak - shift);
        for (int i = 0; i < size(held); ++i) sum += expf(held(i) - shift);
        peak = next;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other_peak = __shfl_xor_sync(0xffffffffu, peak, offset);
        const float other_sum = __shfl_xor_sync(0xffffffffu, sum, offset);
        const float next = fmaxf(peak, other_peak);
        const float shift = next == -CUDART_INF_F ? 0.0f : next;
        sum = sum * expf(peak - shift) + other_sum * expf(other_peak - shift);
        peak = next;
    }

    const float scale = 1.0f / sum;
    for (int t = 0; t < tiles; ++t) {
        load(t);
        for (int i = 0; i < size(held); ++i) held(i) = expf(held(i) - peak) * scale;
        if (elem_less(where(0, 0, 0, t), shape)) copy(tiled_copy, held, out(_, _, _, t));
    }
}

extern "C" void solve(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    const int blocks = ceil_div(rows, kWarps);
    if (cols % 4 == 0) {
        softmax<4><<<blocks, 32 * kWarps, 0, stream>>>(x, y, rows, cols);
    } else {
        softmax<1><<<blocks, 32 * kWarps, 0, stream>>>(x, y, rows, cols);
    }
}
