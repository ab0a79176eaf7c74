"""GPU kernels as pytest items: collected, verified, timed. The plugin itself is ``pytest_kernelopt.plugin``."""

from __future__ import annotations

__version__ = "0.1.0"
