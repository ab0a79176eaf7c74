// Included before every kernel file: lets the process that calls solve() read the last error of the CUDA runtime that is
// linked into this library, such as a launch that was refused. The runtime elsewhere in the process does not know of it.
extern "C" __attribute__((visibility("default"))) int kopt_last_error() { return static_cast<int>(cudaGetLastError()); }
