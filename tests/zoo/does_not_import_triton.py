import nonexistent_module_of_the_zoo


def run_kernel(x, y):
    nonexistent_module_of_the_zoo.f(x, y)
