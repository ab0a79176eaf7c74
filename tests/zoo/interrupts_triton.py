def run_kernel(x, y):
    raise KeyboardInterrupt
