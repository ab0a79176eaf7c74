import ctypes


def run_kernel(x, y):
    ctypes.string_at(0)
