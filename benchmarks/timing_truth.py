"""Is the clock right? Our times beside ncu's, between fresh processes, and against themselves. Needs a GPU, nvcc and ncu.

    python benchmarks/timing_truth.py [--out PATH] [--budget SECONDS] [--quick]

For every kernel of ``CASES``, with a cold and a warm cache: the medians of at least three fresh processes, their spread, and
whether the interval that one reports covers the others; ``gpu__time_duration.sum`` by ncu for the same kernel at the same
sizes, with the difference as it is and less that of an empty kernel; beside them CUDA events, the host's clock, Triton's
do_bench and twenty launches in a row. Then, in one process, intervals of a kernel's time over its own.

The result goes to ``benchmarks/results/timing_truth_<gpu>.json``, after every section anew.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timing_verdict as verdict
from timing_cases import AGAINST_THEMSELVES, CASES, EMPTY, Job, Subject, empty_job

from pytest_kernelopt.core.errors import KernelError, Unavailable
from pytest_kernelopt.core.evaluate import Evaluator, EvaluatorSettings
from pytest_kernelopt.core.toolchain import find_tool, tool_version

HERE = Path(__file__).parent
CALLS, MARKER = 15, "kopt_begin"  # as in timing_launcher.py
FOR_NCU, FOR_REST = 55.0, 50.0  # seconds of the budget that sampling leaves to what comes after it


class Run:
    """What has been measured, and the time that is left."""

    def __init__(self, out: Path | None, budget: float) -> None:
        self.begun = time.monotonic()
        self.budget = budget
        self.out = out
        self.about: dict[str, Any] = {"schema_version": 1, "errors": []}
        self.results: list[dict[str, Any]] = []

    @property
    def left(self) -> float:
        return self.budget - (time.monotonic() - self.begun)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begun:6.1f} s] {text}", flush=True)

    def section(self, name: str, work: Callable[[], None]) -> None:
        """One part; whatever it raises is noted, and the others go on."""
        self.say(name)
        try:
            work()
        except Exception as error:
            self.about["errors"].append(f"{name}: {type(error).__name__}: {error}")
            self.say(f"{name} failed: {traceback.format_exc()}")
        self.save()

    def save(self) -> None:
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            whole = {**self.about, "seconds": round(time.monotonic() - self.begun, 1), "kernels": self.results}
            self.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def time_once(run: Run, evaluator: Evaluator, subject: Subject, mode: str) -> None:
    """The kernel's time in a fresh candidate process."""
    try:
        subject.library.result(timeout=max(1.0, run.left - FOR_NCU - FOR_REST))
        evaluator.verify(subject.spec, subject.case)
        evaluator.stage.drop_candidate()
        begun = time.monotonic()
        timing = evaluator._time(subject.spec, subject.case)
    except (KernelError, Unavailable, TimeoutError, concurrent.futures.TimeoutError) as error:
        subject.result.setdefault("errors", []).append(f"{mode}: {type(error).__name__}: {error}")
        run.say(f"{subject.name} {mode}: {error}")
        return
    low, high = timing.interval_ms
    known = {"events_us": timing.events_median_ms, "wall_us": timing.wall_median_ms, "reference_us": timing.reference_ms}
    process = {
        "median_us": timing.median_ms * 1e3,
        "interval_us": [low * 1e3, high * 1e3],
        "seconds": time.monotonic() - begun,
        "samples": timing.samples,
        "clock": timing.clock,
        "settled": timing.settled,
        "cap_reached": timing.cap_reached,
        "suspicious": timing.suspicious,
        "speedup": timing.speedup,
        "speedup_interval": timing.speedup_interval,
        "sm_clock_mhz": timing.conditions.sm_clock_mhz,
        "kernels": [name[:80] for name in timing.kernels],
        **{name: None if value is None else value * 1e3 for name, value in known.items()},
    }
    subject.processes[mode].append(process)
    part = subject.result.setdefault(mode, {})
    part["processes"] = subject.processes[mode]
    part.update(verdict.agreement(subject.processes[mode]))
    for name in ("events_us", "wall_us", "seconds"):
        values = [p[name] for p in subject.processes[mode] if p[name] is not None]
        part[name] = statistics.median(values) if values else None


def sample(run: Run, evaluators: dict[str, Evaluator], subjects: list[Subject], repetitions: int) -> None:
    """All kernels once, then again: so the processes of one kernel lie apart in time."""
    for _ in range(repetitions):
        for subject in subjects:
            if run.left < FOR_NCU + FOR_REST:
                run.say("no time is left for further repetitions")
                return
            for mode, evaluator in evaluators.items():
                evaluator._answers.update(evaluators["cold"]._answers)  # built and verified once is enough
                time_once(run, evaluator, subject, mode)
            shown = {mode: round(p[-1]["median_us"], 3) for mode, p in subject.processes.items() if p}
            run.say(f"{subject.name} {shown}")
        run.save()


def launcher(run: Run, folder: Path, mode: str, jobs: list[Job], seconds: float, before: list[str]) -> tuple[dict[str, Any], str]:
    """Run timing_launcher.py, behind ``before``: what it wrote, and what was printed."""
    jobs_path, out = folder / f"{mode}.jobs.json", folder / f"{mode}.out.json"
    jobs_path.write_text(json.dumps(jobs), encoding="utf-8")
    out.unlink(missing_ok=True)
    command = [*before, sys.executable, str(HERE / "timing_launcher.py"), mode, str(jobs_path), str(out), str(seconds)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(p or ".") for p in sys.path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environ, cwd=folder,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            printed, said = process.communicate(timeout=seconds + 15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # ncu and what it profiles
            printed, said = process.communicate()
    if process.returncode:
        run.about["errors"].append(f"launcher {mode}: exit status {process.returncode}: {(said + printed)[-1500:]}")
    found = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    for name, result in found.items():
        if "error" in result:
            run.about["errors"].append(f"launcher {mode}: {name}: {result['error']}")
    return found, printed


def by_ncu(run: Run, folder: Path, jobs: list[Job], mode: str) -> dict[str, float]:
    """Median microseconds of every job's calls, by ncu."""
    ncu = find_tool("ncu")
    if ncu is None:
        raise Unavailable("ncu was not found")
    run.about["ncu"] = tool_version(ncu)
    control = {"cold": "all", "warm": "none"}[mode]
    before = [
        str(ncu), "--cache-control", control, "--clock-control", "none", "--metrics", verdict.METRIC,
        "--profile-from-start", "off", "--csv", "--page", "raw", "--print-units", "base",
    ]  # fmt: skip
    found, printed = launcher(run, folder, "ncu", jobs, max(20.0, run.left / 3), before)
    marked = [name for name, result in found.items() if result.get("marked")]
    launches = verdict.read_ncu(printed)
    if not launches:
        raise Unavailable(f"ncu profiled nothing: {printed[-800:]}")
    values = verdict.per_call(launches, MARKER, marked, CALLS)
    run.about.setdefault("ncu_calls", {})[mode] = values
    run.say(f"ncu, {mode}: {len(values)} of {len(jobs)} kernels")
    return {name: statistics.median(value) for name, value in values.items()}


def compare(run: Run, subjects: list[Subject], ncu: dict[str, dict[str, float]], clocks: dict[str, Any]) -> None:
    """Every difference to ncu, raw and less that of the empty kernel."""
    for mode, medians in ncu.items():
        ours_empty = clocks.get(EMPTY, {}).get(f"ours_{mode}_us")
        empty = None if ours_empty is None or EMPTY not in medians else ours_empty - medians[EMPTY]
        run.about.setdefault(EMPTY, {})[mode] = {"ours_us": ours_empty, "ncu_us": medians.get(EMPTY), "difference_us": empty}
        for subject in subjects:
            part = subject.result.get(mode)
            if part and subject.name in medians:
                part.update(verdict.against_ncu(part["median_us"], medians[subject.name], mode, empty))
    for subject in subjects:
        if subject.name in clocks:
            subject.result["others"] = clocks[subject.name]


def about(evaluator: Evaluator) -> dict[str, Any]:
    environment = evaluator.environment().model_dump(mode="json")
    cuda = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.version.cuda)"], capture_output=True, text=True, check=False
    )
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"created": now, "environment": environment, "torch_cuda": cuda.stdout.strip()}


def measure(run: Run, folder: Path, quick: bool) -> None:
    settings = EvaluatorSettings(max_time=1.0)
    cold, warm = (Evaluator(dataclasses.replace(settings, cache=mode)) for mode in ("cold", "warm"))
    evaluators = {"cold": cold, "warm": warm}
    if cold.gpu is None:
        raise Unavailable("this benchmark needs a GPU")
    run.about.update(about(cold))
    if run.out is None:
        gpu = re.sub(r"[^a-z0-9]+", "_", cold.gpu.name.lower()).strip("_")
        run.out = HERE / "results" / f"timing_truth_{gpu}.json"
    subjects = [Subject(path, dims) for path, dims in (CASES[:6] if quick else CASES)]
    run.results = [subject.result for subject in subjects]
    jobs: list[Job] = []
    pool = concurrent.futures.ThreadPoolExecutor(8)

    def build() -> None:
        for evaluator in evaluators.values():  # made once, and not in eight threads
            evaluator.stage._servers.warm("gpu")
            run.say(f"{evaluator.toolchain.nvcc} for {evaluator.target.arch}")
        for subject in reversed(subjects):
            subject.library = pool.submit(cold._library, subject.spec)
        jobs.append(empty_job(folder, cold))

    def bind() -> None:
        for subject in subjects:
            if subject.library.done() and not subject.library.exception():
                jobs.append(subject.job(cold))
        for evaluator in evaluators.values():
            evaluator.close()  # their memory and their processes are out of the way of what follows

    ncu: dict[str, dict[str, float]] = {}
    clocks: dict[str, Any] = {}
    try:
        run.section("building", build)
        run.section("fresh processes", lambda: sample(run, evaluators, subjects, 2 if quick else 3))
        run.section("binding", bind)
        run.section("ncu, cold", lambda: ncu.update(cold=by_ncu(run, folder, jobs, "cold")))
        run.section("ncu, warm", lambda: ncu.update(warm=by_ncu(run, folder, jobs, "warm")))
        run.section("other clocks", lambda: clocks.update(launcher(run, folder, "clocks", jobs, max(15.0, run.left / 2), [])[0]))
        run.section("differences", lambda: compare(run, subjects, ncu, clocks))
        named = [job for job in jobs if job["name"] in {subjects[i].name for i in AGAINST_THEMSELVES}]
        run.section(
            "against themselves",
            lambda: run.about.update(in_process_aa=launcher(run, folder, "aa", named, max(15.0, run.left - 10), [])[0]),
        )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for evaluator in evaluators.values():
            evaluator.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--budget", type=float, default=240.0, help="seconds that all of it may take")
    parser.add_argument("--quick", action="store_true", help="six kernels, two processes each")
    given = parser.parse_args()
    run = Run(given.out, given.budget)
    with tempfile.TemporaryDirectory() as folder:
        run.section("all", lambda: measure(run, Path(folder), given.quick))
    print(verdict.table(verdict.rows(run.results)) if run.results else "nothing was measured")
    print(f"empty kernel: {json.dumps(run.about.get(EMPTY))}")
    for name, result in run.about.get("in_process_aa", {}).items():
        print(f"A/A in one process: {name}: {result.get('cover_1')} of {result.get('tries')} intervals cover 1")
    for error in run.about["errors"]:
        print(f"error: {error}")
    print(f"{time.monotonic() - run.begun:.0f} s; {run.out}")


if __name__ == "__main__":
    main()
