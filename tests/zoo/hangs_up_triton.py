import os
import time


def run_kernel(x, y):
    os.closerange(3, 4096)
    time.sleep(600)
