# An ordinary test file: the `kernel` marker binds a test to a kernel file, fixtures run it, hold it against its reference
# and time it. What needs a GPU is skipped without one, with the reason.
import pytest
import torch


@pytest.mark.kernel("02_softmax/softmax_triton.py", rows=64, cols=256)
def test_every_row_is_a_distribution(kernel, case):
    y = kernel.run(case)["y"]
    assert (y >= 0).all()
    torch.testing.assert_close(y.sum(dim=-1), torch.ones(64))


@pytest.mark.kernel("07_axpy/axpy_triton.py")  # without dims: once for each case of the reference
def test_axpy_agrees_with_its_reference(kernel, case, kopt_reference):
    torch.testing.assert_close(kernel.run(case)["y"], kopt_reference(case)["y"])


@pytest.mark.kernel("06_histogram/histogram_triton.py", n=10_007, bins=100)
def test_every_value_is_counted_once(kernel, case):
    assert kernel.run(case)["counts"].sum() == 10_007


@pytest.mark.kernel("02_softmax/softmax.cu", rows=4096, cols=1024)
def test_softmax_stays_within_its_budget(kernel, case, kopt_timing):
    assert kopt_timing(kernel, case).median_ms < 0.5
