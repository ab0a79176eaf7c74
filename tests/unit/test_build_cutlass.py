from __future__ import annotations

from pathlib import Path

import pytest

from pytest_kernelopt.core.build import Artifact, Cache, build
from pytest_kernelopt.core.build.cutlass import asks_for_sm90, check_sass
from pytest_kernelopt.core.errors import BuildError
from pytest_kernelopt.core.spec.model import KernelSpec, Parameter
from pytest_kernelopt.core.toolchain import Target, Toolchain

TOOLS = Toolchain.find()
PARAMETERS = (
    Parameter("A", "tensor", "float16", const=True),
    Parameter("B", "tensor", "float16", const=True),
    Parameter("D", "tensor", "float32"),
    *(Parameter(name, "scalar", "int32") for name in "mnk"),
)
COLLECTIVE = """\
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"

using TileShape = cute::Shape<cute::_128, cute::_128, cute::_64>;
using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, Cluster, cutlass::epilogue::collective::EpilogueTileAuto,
    float, float, float, Row, 4, float, Row, 4, cutlass::epilogue::collective::EpilogueScheduleAuto>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, cutlass::half_t, Row, 8, cutlass::half_t, Column, 8, float,
    TileShape, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::collective::KernelScheduleAuto>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

extern "C" int solve(const half* A, const half* B, float* D, int m, int n, int k) {
    auto a = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1});
    auto b = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1});
    auto d = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, {m, n, 1});
    typename Gemm::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k, 1},
        {reinterpret_cast<const cutlass::half_t*>(A), a, reinterpret_cast<const cutlass::half_t*>(B), b},
        {{1.0f, 0.0f}, D, d, D, d}};
    Gemm gemm;
    return static_cast<int>(gemm.run(arguments));
}
"""
# What is left of a collective on the wrong arch: the names, and a kernel without its body. Quick to compile.
GUTTED = """\
#include "cutlass/arch/arch.h"
template <class Arch> struct CollectiveBuilder {};
using Mainloop = CollectiveBuilder<cutlass::arch::Sm90>;
template <class T> __global__ void device_kernel() {}
extern "C" int solve(const void* A, const void* B, void* D, int m, int n, int k) {
    device_kernel<Mainloop><<<1, 1>>>();
    return 0;
}
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


def made(path: Path, source: str, cache: Cache, arch: str, backend: str = "cutlass") -> Artifact:
    path.write_text(source)
    pointers = (
        PARAMETERS
        if "half*" in source
        else tuple(Parameter(p.name, p.kind, None if p.kind == "tensor" else p.dtype, p.const) for p in PARAMETERS)
    )
    spec = KernelSpec(path, backend, "solve", 1, pointers, returns_status=True)  # type: ignore[arg-type]
    return build(spec, Target(arch), TOOLS, cache)


def test_an_sm90_collective_builds_for_sm_90a_with_its_warp_group_instructions(tmp_path: Path, cache: Cache) -> None:
    """Takes half a minute and 2 GB: the only one of its kind here."""
    record = made(tmp_path / "gemm.cu", COLLECTIVE, cache, "sm_90a").record
    assert record.backend == "cutlass"
    assert "CUTLASS 4." in record.compiler
    (kernel,) = record.kernels
    assert kernel.name == "cutlass::device_kernel<...>"
    assert kernel.registers == 168
    assert kernel.spill_store_bytes == 0
    assert not [note for note in record.notes if "SASS" in note]


@pytest.mark.parametrize(
    ("arch", "remedy"), [("sm_90", "--kopt-arch sm_90a"), ("sm_80", "--kopt-arch sm_90a"), ("sm_90a", "no kernel")]
)
def test_a_collective_without_its_instructions_is_refused_and_not_kept(
    tmp_path: Path, cache: Cache, arch: str, remedy: str
) -> None:
    with pytest.raises(BuildError) as error:
        made(tmp_path / "gutted.cu", GUTTED, cache, arch)
    assert str(error.value).startswith(f"gutted.cu: the source asks for Sm90 collectives, and its SASS for {arch} holds no HGMMA")
    assert remedy in str(error.value)
    assert not list(cache.root.glob("??/*/gutted.so"))


def test_cute_in_a_header_brings_its_folders_to_a_plain_cuda_kernel(tmp_path: Path, cache: Cache) -> None:
    (tmp_path / "layouts.cuh").write_text('#include "cute/config.hpp"\n#ifndef CUTE_HOST_DEVICE\n#error\n#endif\n')
    source = f'#include "layouts.cuh"\n{GUTTED.replace("Sm90", "Sm80")}'
    record = made(tmp_path / "k.cu", source, cache, "sm_90a", backend="cuda").record
    assert "CUTLASS" in record.compiler
    assert record.kernels[0].name.startswith("device_kernel<")


@pytest.mark.parametrize(
    ("source", "asks"),
    [
        ("using M = CollectiveBuilder<cutlass::arch::Sm90, X>;", True),
        ("using M = collective::CollectiveMma<MainloopSm90TmaGmmaWarpSpecialized<4>, arch :: Sm90>;", True),
        ("auto mma = make_tiled_mma(SM90_64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{});", True),
        (
            "using G = device::Gemm<double, R, double, C, double, R, double, OpClassTensorOp, cutlass::arch::Sm90>;",
            False,
        ),
        ("// CollectiveBuilder<cutlass::arch::Sm90>\nusing M = CollectiveBuilder<cutlass::arch::Sm100>;", False),
        ("#if 0\nusing M = CollectiveBuilder<cutlass::arch::Sm90>;\n#endif", False),
        (
            "using G = device::Gemm<half_t, R, half_t, C, float, R, float, OpClassTensorOp, cutlass::arch::Sm80>;",
            False,
        ),
    ],
)
def test_only_live_sm90_collectives_ask_for_warp_group_instructions(source: str, asks: bool) -> None:
    assert asks_for_sm90(source) is asks


def test_without_cuobjdump_the_build_says_that_nobody_looked(tmp_path: Path) -> None:
    (note,) = check_sass(tmp_path / "k.so", GUTTED, Target(), Toolchain(), "k.cu")
    assert note == "SASS was not looked at: cuobjdump was not found"
