import os


def run_kernel(x, y):
    print("about to abort")
    os.abort()
