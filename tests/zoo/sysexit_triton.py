import sys


def run_kernel(x, y):
    sys.exit(0)
