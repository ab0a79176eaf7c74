"""Inputs of challenge classes (``generate_performance_test``, ``get_solve_signature``, ``reference_impl``) for references here.

Copy this file beside your references, and write one reference for each challenge::

    from challenge import Challenge
    from challenge_inputs import challenge_inputs

    cases = [{"N": 65536, "C": 512, "eps": 1e-5}]          # the scalars of the challenge's own test

    def make_inputs(*, seed, device, **dims):
        return challenge_inputs(Challenge(), seed=seed, device=device, dims=dims)

    def reference(input: Float[Tensor, "N C"], output: Float[Tensor, "N C"], N: int, C: int, eps: float) -> None:
        Challenge().reference_impl(input, output, N, C, eps)

The older kind of challenge returns tensors, which it makes with the global generator and on the GPU (so it needs one); the
newer kind returns descriptions with a ``shape``, a ``dtype`` and the parameters of a distribution. Both are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def challenge_inputs(
    challenge: Any, *, seed: int, device: str, dims: Mapping[str, Any], test: Mapping[str, Any] | None = None
) -> dict[str, torch.Tensor]:
    """The input tensors by name, those of pure outputs left out, the same for the same seed.

    ``test`` is the case's dict (default: ``challenge.generate_performance_test()``). ValueError where its scalars are not
    ``dims``: the shapes in the reference's annotations would be others.
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        given = challenge.generate_performance_test() if test is None else test
        directions = {name: direction for name, (_, direction) in challenge.get_solve_signature().items()}
        inputs = {}
        for name, value in given.items():
            if hasattr(value, "shape"):
                if directions.get(name) != "out":
                    inputs[name] = _tensor(value, device)
            elif name in dims and value != dims[name]:
                raise ValueError(f"the challenge's test has {name}={value}, and the case says {dims[name]}")
        return inputs


def _tensor(value: Any, device: str) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    dtype = getattr(torch, str(value.dtype).removeprefix("torch."))
    empty = torch.empty(tuple(value.shape), dtype=dtype, device=device)
    if hasattr(value, "value"):
        return empty.fill_(value.value)
    if hasattr(value, "std"):
        return empty.normal_(value.mean, value.std)
    if dtype.is_floating_point:
        return empty.uniform_(value.low, value.high)
    return torch.randint(value.low, value.high, tuple(value.shape), dtype=dtype, device=device)
