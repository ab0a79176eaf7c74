"""A stand-in for the NVIDIA driver's two libraries, in C: two GPUs that CUDA and NVML number differently.

With it the real ctypes and nvidia-ml-py code runs on a machine without a GPU. FAKE_CUINIT, FAKE_NVML (an error code),
FAKE_HANG and FAKE_CRASH make it fail.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

# CUDA order: the fast card first. NVML order: the PCI bus, where the slow card comes first.
FAST = "11111111-1111-1111-1111-111111111111"
SLOW = "22222222-2222-2222-2222-222222222222"

CUDA = r"""
#include <stdlib.h>
#include <string.h>
static int seen[2], count;
int cuInit(unsigned flags) {
  const char *fail = getenv("FAKE_CUINIT"), *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (getenv("FAKE_HANG")) for (;;) ;
  if (getenv("FAKE_CRASH")) abort();
  if (fail) return atoi(fail);
  if (!visible) { seen[0] = 0; seen[1] = 1; count = 2; }
  else if (!strcmp(visible, "1") || !strncmp(visible, "GPU-2222", 8)) { seen[0] = 1; count = 1; }
  else if (!strcmp(visible, "0")) { seen[0] = 0; count = 1; }
  return count ? 0 : 100;
}
int cuDeviceGetCount(int *n) { *n = count; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = seen[ordinal]; return 0; }
int cuDeviceGetUuid(char *uuid, int device) { memset(uuid, 0x99, 16); return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, device ? 0x22 : 0x11, 16); return 0; }
int cuDeviceGetName(char *name, int length, int device) { strcpy(name, device ? "Slow card" : "Fast card"); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = device ? 16ul << 30 : 141ul << 30; return 0; }
int cuGetErrorName(int code, const char **text) {
  *text = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR_OTHER"; return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  switch (attribute) {
    case 16: *value = device ? 40 : 132; return 0;
    case 38: *value = device ? 4 << 20 : 60 << 20; return 0;
    case 75: *value = device ? 7 : 9; return 0;
    case 76: *value = device ? 5 : 0; return 0;
  }
  return 1;
}
"""

NVML = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process;
static const char *uuids[] = {"GPU-22222222-2222-2222-2222-222222222222", "GPU-11111111-1111-1111-1111-111111111111"};
static long at(void *handle) { return (long)handle - 1; }
int nvmlInitWithFlags(unsigned flags) { return getenv("FAKE_NVML") ? atoi(getenv("FAKE_NVML")) : 0; }
const char *nvmlErrorString(int code) { return code == 4 ? "Insufficient Permissions" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { strcpy(text, "580.159.04"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(index + 1l); return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  for (long i = 0; i < 2; i++) if (!strcmp(uuid, uuids[i])) { *handle = (void *)(i + 1); return 0; }
  return 6;
}
int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
  strcpy(name, at(handle) ? "Fast card" : "Slow card"); return 0;
}
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length) { strcpy(uuid, uuids[at(handle)]); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
  *major = at(handle) ? 9 : 7; *minor = at(handle) ? 0 : 5; return 0;
}
static int looks;
int nvmlDeviceGetClockInfo(void *handle, int which, unsigned *mhz) {
  if (which == 2) { *mhz = at(handle) ? 3201 : 5001; return 0; }
  if (!at(handle)) return 3;
  *mhz = looks++ == 0 ? 345 : 1980; return 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *mask) {
  *mask = at(handle) ? (looks > 1 ? 0x4 : 0x1) : 0x8 | 0x40; return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *out) {
  if (!at(handle)) { *count = 0; return 0; }
  if (*count < 2) { *count = 2; return 7; }
  *count = 2; memset(out, 0, 2 * sizeof *out); out[0].pid = 1; out[1].pid = 999999;
  return 0;
}
"""


def build(folder: Path) -> Path:
    """Both libraries in ``folder``, which is to be put on LD_LIBRARY_PATH."""
    for name, source in (("libcuda.so.1", CUDA), ("libnvidia-ml.so.1", NVML)):
        command = ["gcc", "-w", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / name)]
        subprocess.run(command, input=source, text=True, check=True)
    return folder
