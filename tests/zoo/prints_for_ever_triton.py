import os


def run_kernel(x, y):
    while True:
        os.write(1, b"-" * (1 << 20))
