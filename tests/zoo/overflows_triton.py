import ctypes
import sys

sys.setrecursionlimit(1 << 30)


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
def deeper(n):
    return deeper(n + 1) + 1


def run_kernel(x, y):
    deeper(0)
