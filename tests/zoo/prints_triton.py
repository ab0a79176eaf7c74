LINE = "-" * 999


def run_kernel(x, y):
    for _ in range(200_000):
        print(LINE)
    y.copy_(2 * x)
