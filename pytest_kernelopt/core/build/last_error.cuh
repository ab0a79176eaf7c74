// Included before every kernel file: lets the process that calls solve() read the last error of the CUDA runtime that is
// linked into this library, such as a launch that was refused. The runtime elsewhere in the process does not know of it.
#define KOPT_EXPORT extern "C" __attribute__((visibility("default")))
KOPT_EXPORT int kopt_last_error() { return static_cast<int>(cudaGetLastError()); }
KOPT_EXPORT const char* kopt_error_text(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }
#undef KOPT_EXPORT
