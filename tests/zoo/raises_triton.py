def helper(x):
    return [][x.numel()]


def run_kernel(x, y):
    helper(x)
