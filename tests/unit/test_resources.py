from __future__ import annotations

import pytest

from pytest_kernelopt.core.build.resources import advice, read_ptxas, readable_names, shorten

NVCC_13 = """\
ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function '_Z5tiledPKfPf' for 'sm_90a'
ptxas info    : Function properties for _Z5tiledPKfPf
    7208 bytes stack frame, 9572 bytes spill stores, 9376 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 7208 bytes cumulative stack size, 49152 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 12.549 ms
ptxas info    : Function properties for _Z6helperf
    16 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads
ptxas info    : Compiling entry function '_Z3addPKfPfi' for 'sm_90a'
ptxas info    : Function properties for _Z3addPKfPfi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
"""


def test_registers_stack_spills_and_static_shared_memory_of_each_kernel_are_read() -> None:
    tiled, add = read_ptxas(NVCC_13)
    assert tiled.record("tiled") == {
        "name": "tiled",
        "arch": "sm_90a",
        "registers": 64,
        "stack_bytes": 7208,
        "spill_store_bytes": 9572,
        "spill_load_bytes": 9376,
        "static_shared_bytes": 49152,
    }
    assert (add.symbol, add.registers, add.stack_bytes, add.static_shared_bytes) == ("_Z3addPKfPfi", 10, 0, 0)


def test_a_device_function_listed_first_is_not_taken_for_the_kernel() -> None:
    log = """\
ptxas info    : Compiling entry function '_Z1kv' for 'sm_80'
ptxas info    : Function properties for _Z6helperf
    16 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads
ptxas info    : Function properties for _Z1kv
    8 bytes stack frame, 3 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 32 registers, 128+0 bytes smem, 352 bytes cmem[0]
"""
    (kernel,) = read_ptxas(log)
    assert (kernel.stack_bytes, kernel.spill_store_bytes, kernel.static_shared_bytes) == (8, 3, 128)


def test_what_ptxas_did_not_say_is_unknown_and_not_zero() -> None:
    (kernel,) = read_ptxas("ptxas info    : Compiling entry function 'k' for 'sm_75'\n")
    assert kernel.record("k") == {"name": "k", "arch": "sm_75"} | dict.fromkeys(
        ("registers", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "static_shared_bytes")
    )
    assert read_ptxas("nothing here") == ()


def test_serialised_wgmma_is_passed_on_once() -> None:
    warning = "Potential Performance Loss: wgmma.mma_async instructions are serialized due to X in function 'k'"
    assert advice(f"ptxas info    : (C7510) {warning}\n" * 2) == (warning,)


@pytest.mark.parametrize(
    ("demangled", "name"),
    [
        ("add(float const*, float*, int)", "add"),
        ("void ns::add<float, (int)4>(float const*, float*)", "ns::add<float, (int)4>"),
        ("(anonymous namespace)::k(int)", "(anonymous namespace)::k"),
        ("void outer<a::b<c<1>>>::inner<2>(void (*)(int))", "outer<a::b<c<1>>>::inner<2>"),
        ("void cutlass::device_kernel<" + "X<1>, " * 90 + "Y>(Params)", "cutlass::device_kernel<...>"),
        ("triton_kernel", "triton_kernel"),
    ],
)
def test_a_kernel_is_named_as_its_author_wrote_it(demangled: str, name: str) -> None:
    assert shorten(demangled) == name


def test_mangled_names_are_demangled() -> None:
    assert readable_names(("_Z3addPKfPfi", "plain")) == ("add", "plain")
    assert readable_names(()) == ()
