import resource

import torch


def run_kernel(x, y):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), used + (256 << 20)))
    kept = []
    while True:
        kept.append(torch.ones(1 << 22))
