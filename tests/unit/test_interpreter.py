"""What an exception in Triton's interpreter says of the kernel, by the messages that Triton 3.6 to 3.9 print."""

from __future__ import annotations

import pytest

from pytest_kernelopt.core.isolate.runner import ChildFailure
from pytest_kernelopt.core.verify import interpreter

INSIDE = 'File "site-packages/triton/runtime/interpreter.py", line 40, in __init__'


@pytest.mark.parametrize(
    ("message", "lacking"),
    [
        (
            "numpy data itemsize (32 bits) exceeds dtype primitive_bitwidth (1 bits) for triton type int1",  # 3.6, 3.7
            "a Python bool as an argument",
        ),
        ("only 0-dimensional arrays can be converted to Python scalars", "loops with a runtime bound"),  # 3.6, numpy 2.4
        ("extern_elementwise not supported", "external functions"),
        ("Unsupported data type: bfloat16", "an atomic on this data type"),
    ],
)
def test_what_the_interpreter_lacks_is_no_fault_of_the_kernel(message: str, lacking: str) -> None:
    found = interpreter.limit(ChildFailure("raised", message, trace=INSIDE))
    assert found is not None
    assert lacking in found


def test_the_same_words_in_a_kernels_own_exception_are_its_own() -> None:
    trace = 'File "kernels/softmax_triton.py", line 3, in run_kernel'
    assert interpreter.limit(ChildFailure("raised", "Unsupported data type", trace=trace)) is None


def test_a_crash_is_never_a_limit() -> None:
    assert interpreter.limit(ChildFailure("crashed", "Unsupported data type", trace=INSIDE)) is None
