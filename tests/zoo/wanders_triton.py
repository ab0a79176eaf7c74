import os
import tempfile


def run_kernel(x, y):
    os.chdir("/")
    os.environ.clear()
    os.environ["TRITON_INTERPRET"] = "0"
    os.umask(0o777)
    tempfile.tempdir = "/nonexistent"
    y.copy_(2 * x)
