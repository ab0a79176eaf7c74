"""The file that ceilings are kept in. What they measure is held by the tests that need a GPU."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_kernelopt.core.records import Gpu
from pytest_kernelopt.core.timing import ceilings
from pytest_kernelopt.core.timing.ceilings import Ceilings

GPU = Gpu(
    index=0,
    name="A GPU",
    uuid="GPU-1111",
    capability=(9, 0),
    driver="580.1",
    memory_bytes=1 << 30,
    l2_bytes=1 << 20,
    sm_count=132,
)
MEASURED = {"dram_read_gb_s": 4000.0, "tflops": {"float16": 700.0}}


def QUIET() -> bool:
    return True


def test_a_gpu_is_measured_once_and_then_read_from_the_file(tmp_path: Path) -> None:
    calls: list[int] = []

    def measured() -> dict[str, object]:
        calls.append(1)
        return MEASURED

    first = ceilings.obtain(tmp_path, GPU, "2.13.0", measured, undisturbed=QUIET)
    again = ceilings.obtain(tmp_path, GPU, "2.13.0", measured, undisturbed=QUIET)
    assert first == again == Ceilings(dram_read_gb_s=4000.0, tflops={"float16": 700.0})
    assert len(calls) == 1
    ceilings.obtain(tmp_path, GPU, "2.14.0", measured, undisturbed=QUIET)
    ceilings.obtain(tmp_path, GPU.model_copy(update={"driver": "590.1"}), "2.13.0", measured, undisturbed=QUIET)
    assert len(calls) == 3


def test_what_was_measured_on_a_busy_gpu_is_used_and_not_kept(tmp_path: Path) -> None:
    assert ceilings.obtain(tmp_path, GPU, "2.13.0", lambda: MEASURED, undisturbed=lambda: False).dram_gb_s == 4000.0
    assert ceilings.load(ceilings.path_for(tmp_path, GPU, "2.13.0")) is None


def test_a_damaged_or_older_file_is_measured_anew(tmp_path: Path) -> None:
    path = ceilings.path_for(tmp_path, GPU, "2.13.0")
    path.parent.mkdir()
    for text in ("", "{", "[]", json.dumps({"schema_version": 0, "ceilings": MEASURED})):
        path.write_text(text)
        assert ceilings.load(path) is None
        assert ceilings.obtain(tmp_path, GPU, "2.13.0", lambda: MEASURED, undisturbed=QUIET).dram_gb_s == 4000.0
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_cache_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert ceilings.obtain(blocked, GPU, "2.13.0", lambda: MEASURED, undisturbed=QUIET).dram_gb_s == 4000.0


def test_the_dram_ceiling_is_the_higher_of_reading_and_copying() -> None:
    assert Ceilings(dram_read_gb_s=3900.0, dram_copy_gb_s=4280.0).dram_gb_s == 4280.0
    assert Ceilings(l2_gb_s=1.0).dram_gb_s is None
