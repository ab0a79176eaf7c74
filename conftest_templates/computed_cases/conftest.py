"""Cases that are computed: for every kernel of `KERNELS` each size of its dims, and the sizes just beside it.

A reference's own `cases` are literals. Where they follow a rule, the hook below gives them in its place; a kernel that
`KERNELS` does not name keeps the cases of its reference. The first case of a list is the one that is timed, unless the
reference names `timed`.
"""

from itertools import product

# File name pattern of the kernels -> sizes of each dim. Adapt this to your kernels.
KERNELS = {
    "softmax*": {"rows": (256, 64), "cols": (1024, 512)},
}


def pytest_kopt_cases(path):
    """Full sizes first, then one dim at a time off by one: where a wrong tail or a missing mask shows."""
    for pattern, dims in KERNELS.items():
        if path.match(pattern):
            return [*_grid(dims), *_beside(dims)]
    return None


def _grid(dims):
    return [dict(zip(dims, sizes, strict=True)) for sizes in product(*dims.values())]


def _beside(dims):
    first = {name: sizes[0] for name, sizes in dims.items()}
    return [{**first, name: first[name] + step} for name in dims for step in (-1, 1)]
