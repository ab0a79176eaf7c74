"""Floors by hand-computed numbers, on a GPU with round ones: 4000 GB/s DRAM, 8000 GB/s L2, 50 MB of it."""

from __future__ import annotations

import pytest

from pytest_kernelopt.core.reference.problem import Problem, Role, TensorSpec
from pytest_kernelopt.core.timing.ceilings import Ceilings
from pytest_kernelopt.core.timing.floors import CacheMode, estimated_floor_ms, hard_floor_ms, judge, rates

L2 = 50_000_000
MEASURED = Ceilings(
    dram_read_gb_s=4000.0,
    dram_copy_gb_s=3800.0,
    l2_gb_s=8000.0,
    tflops={"float32": 50.0, "tf32": 400.0, "float16": 700.0, "bfloat16": 750.0, "float64": 60.0, "int8": 1400.0},
)


def tensor(name: str, megabytes: float, role: Role, dtype: str = "float32") -> TensorSpec:
    itemsize = {"float32": 4, "float16": 2, "int32": 4, "float64": 8}[dtype]
    return TensorSpec(name, dtype, (round(megabytes * 1e6 / itemsize),), role)


def problem(reads: float, writes: float, *, dtype: str = "float32", **declared: float | bool) -> Problem:
    """A kernel that reads and writes that many MB."""
    return Problem((tensor("x", reads, "input", dtype), tensor("y", writes, "output", dtype)), (), **declared)  # type: ignore[arg-type]


def test_without_a_declaration_there_is_no_hard_floor_and_the_tensors_give_the_estimate() -> None:
    p = problem(400, 400)
    assert hard_floor_ms(p, "cold", MEASURED, L2) is None
    floor = estimated_floor_ms(p, "cold", MEASURED, L2)
    # 800 MB, of which 50 MB of results may still lie in the L2: 750 MB at 4000 GB/s
    assert floor is not None
    assert floor.ms == pytest.approx(0.1875)
    assert floor.by == "800 MB (less what may stay in the L2) at 4000 GB/s from DRAM"


def test_the_hard_floor_takes_declared_bytes_and_a_measured_ceiling_with_its_margin() -> None:
    floor = hard_floor_ms(problem(400, 0, bytes_moved=400e6), "cold", MEASURED, L2)
    assert floor is not None
    assert floor.ms == pytest.approx(400e6 / 4200e9 * 1e3)


def test_the_hard_floor_takes_the_peak_of_clock_and_width_where_that_is_higher() -> None:
    ceilings = Ceilings(dram_read_gb_s=4000.0, dram_peak_gb_s=4917.0)
    floor = hard_floor_ms(problem(400, 0, bytes_moved=400e6), "cold", ceilings, L2)
    assert floor is not None
    assert floor.ms == pytest.approx(400e6 / 4917e9 * 1e3)


def test_cold_results_that_fit_in_the_l2_cost_no_dram_time() -> None:
    floor = estimated_floor_ms(problem(40, 40), "cold", MEASURED, L2)
    assert floor is not None
    assert floor.ms == pytest.approx(0.010)


@pytest.mark.parametrize(
    ("reads", "expected_ms"),
    [
        (40, 0.005),  # all of it from the L2 at 8000 GB/s
        (400, 0.0875),  # 350 MB can't have stayed: from DRAM at 4000 GB/s
        (60, 0.0075),  # 10 MB from DRAM take 2.5 us, all 60 MB through the L2 take longer
    ],
)
def test_warm_data_comes_from_the_l2_as_far_as_it_fits(reads: float, expected_ms: float) -> None:
    floor = estimated_floor_ms(problem(reads, 0), "warm", MEASURED, L2)
    assert floor is not None
    assert floor.ms == pytest.approx(expected_ms)


def test_an_inout_tensor_is_read_and_written() -> None:
    p = Problem((tensor("acc", 400, "inout"),), ())
    floor = estimated_floor_ms(p, "cold", MEASURED, L2)
    assert floor is not None
    assert floor.ms == pytest.approx((800e6 - L2) / 4000e9 * 1e3)


def test_guessed_sizes_give_no_floor() -> None:
    assert estimated_floor_ms(problem(400, 400, guessed_sizes=True), "cold", MEASURED, L2) is None
    assert rates(0.1, problem(400, 400, guessed_sizes=True), "cold", MEASURED, L2).gb_per_s is None


# tf32 at 400 TFLOP/s is the fastest measured for its width: 800 of a two-byte type, 1600 of a one-byte type
@pytest.mark.parametrize(
    ("dtype", "compute", "tflops"),
    [
        ("float16", None, 800.0),
        ("float32", None, 400.0),
        ("float32", "tf32", 400.0),
        ("float32", "ieee", 400.0 / 3),  # three tf32 products give full precision, faster than float32 units
        ("float32", "bf16", 800.0),
        ("float64", None, 60.0),
    ],
)
def test_the_hard_floor_takes_the_fastest_honest_arithmetic(dtype: str, compute: str | None, tflops: float) -> None:
    floor = hard_floor_ms(problem(1, 1, dtype=dtype, flops=1e12), "cold", MEASURED, L2, compute)
    assert floor is not None
    assert floor.ms == pytest.approx(1e12 / (tflops * 1.25e12) * 1e3)


def test_a_kernel_may_be_faster_than_the_librarys_matmul_of_its_type() -> None:
    h200 = Ceilings(tflops_peak={"float16": 894.0, "bfloat16": 890.0, "int8": 966.0, "tf32": 440.0})
    int8 = Problem(
        tensors=(TensorSpec("a", "int8", (2048, 2048), "input"), TensorSpec("c", "float16", (2048, 2048), "output")),
        arguments=(),
        flops=2.0 * 2048**3,
    )
    assert judge(0.0158, int8, "cold", h200, L2).kind is None, "a Triton kernel on one H200, faster than torch._int_mm"
    assert judge(0.0050, int8, "cold", h200, L2).kind == "impossible"


def test_flops_of_a_dtype_without_a_ceiling_give_no_floor() -> None:
    assert hard_floor_ms(problem(1, 1, dtype="int32", flops=1e15), "cold", MEASURED, L2) is None


def test_a_gpu_of_which_nothing_is_known_gives_no_floor() -> None:
    p = problem(400, 400, bytes_moved=8e8, flops=1e12)
    assert hard_floor_ms(p, "cold", Ceilings(), L2) is None
    assert judge(1e-6, p, "warm", Ceilings(), L2).kind is None


def test_the_longer_of_memory_and_compute_is_the_floor() -> None:
    p = problem(400, 0, dtype="float16", flops=1e9, bytes_moved=400e6)
    floor = hard_floor_ms(p, "cold", MEASURED, L2)
    assert floor is not None
    assert "DRAM" in floor.by


def test_faster_than_declared_work_allows_is_impossible_and_says_what_to_look_at() -> None:
    p = problem(400, 0, bytes_moved=400e6)
    verdict = judge(0.090, p, "cold", MEASURED, L2)
    assert verdict.kind == "impossible"
    assert verdict.floor_ms == pytest.approx(0.100)
    assert verdict.sentence == (
        "90 us is faster than this GPU can be: 400 MB at 4200 GB/s from DRAM take at least 95.2 us; "
        "either the kernel leaves out work, or the reference declares too many flops or bytes_moved"
    )


def test_faster_than_the_tensors_allow_is_suspicious_and_names_the_remedy() -> None:
    verdict = judge(0.090, problem(400, 0), "cold", MEASURED, L2)
    assert verdict.kind == "suspicious"
    assert verdict.sentence is not None
    assert "declare bytes_moved" in verdict.sentence


@pytest.mark.parametrize("median_ms", [0.096, 0.100, 5.0])
@pytest.mark.parametrize("declared", [{}, {"bytes_moved": 400e6}])
def test_a_kernel_at_or_above_the_measured_ceiling_is_not_accused(median_ms: float, declared: dict[str, float]) -> None:
    verdict = judge(median_ms, problem(400, 0, **declared), "cold", MEASURED, L2)
    assert (verdict.kind, verdict.sentence) == (None, None)


@pytest.mark.parametrize(("cache", "percent"), [("cold", 50.0), ("warm", 25.0)])
def test_rates_are_percentages_of_the_ceiling_that_the_data_meets(cache: CacheMode, percent: float) -> None:
    found = rates(0.01, problem(10, 10), cache, MEASURED, L2)
    assert found.gb_per_s == pytest.approx(2000.0)
    assert found.bandwidth_percent == pytest.approx(percent)
    assert found.tflop_per_s is None


def test_a_float32_kernel_is_compared_with_float32_arithmetic_unless_tf32_is_declared() -> None:
    p = problem(1, 1, flops=1e12)
    assert rates(40.0, p, "cold", MEASURED, L2).compute_percent == pytest.approx(50.0)
    assert rates(40.0, p, "cold", MEASURED, L2, "tf32").compute_percent == pytest.approx(6.25)
