"""One item's questions to the evaluator, what was learned as a record, and their failures and skips as pytest's own."""

from __future__ import annotations

import itertools
import json
import os
import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .core.errors import BuildError, KernelError, Unavailable
from .options import as_typed
from .text import clean

if TYPE_CHECKING:
    from torch import Tensor

    from .core.records import Build, Correctness, Environment, Timing
    from .core.spec.model import Case, KernelSpec
    from .state import State

LOG_LINES = 60  # of a compiler's output in a failure; the first errors matter, template backtraces have no end

# What an item learned. ``RECORD`` is the entry "kopt" of its user_properties: small, for every report. ``DETAILS`` is the
# same with all samples and the whole build: it goes to --kopt-json alone.
RECORD = pytest.StashKey[dict[str, Any]]()
DETAILS = pytest.StashKey[dict[str, Any]]()
KERNEL = pytest.StashKey[Path]()  # the kernel file that an item asked about


class WrongResult(KernelError):
    """A kernel that differs from its reference: ``str(error)`` is the report."""


class Check:
    """The evaluator's answers on the kernel of one item, written into the item's record as they come."""

    def __init__(self, item: pytest.Item, state: State, spec: KernelSpec, settings: Mapping[str, Any]) -> None:
        from .selection import with_settings

        self.item = item
        item.stash[KERNEL] = spec.path
        self.spec = with_settings(spec, settings)
        self._state = state
        self._record = item.stash[RECORD]
        self._details = item.stash[DETAILS]

    def environment(self) -> Environment:
        return self._state.environment()

    def build(self) -> Build:
        """BuildError with the compiler's own lines, Unavailable without a compiler."""
        try:
            build = self._state.evaluator.build(self.spec)
        except BuildError as error:
            self._record["build_error"] = self._details["build_error"] = str(error)
            raise
        self._record["resources"] = resources(build)
        self._details["build"] = plain(build)
        return build

    def verify(self, case: Case) -> Correctness:
        """WrongResult for a wrong kernel, Unavailable where it can't be asked or there is no reference."""
        try:
            verdict = self.judge(case)
        except WrongResult as error:
            raise WrongResult(f"{error}\n  alone: {self._command()}") from None
        if verdict.verdict == "unverified":
            raise Unavailable(verdict.message or self._no_reference())
        return verdict

    def judge(self, case: Case) -> Correctness:
        """The verdict on a case, which may be that nothing was there to compare with."""
        self._require_build()
        verdict = self._state.evaluator.verify(self.spec, case)
        self._record["correctness"] = self._details["correctness"] = plain(verdict)
        if verdict.verdict in ("failed", "error"):
            raise WrongResult(verdict.message or f"{self.spec.path.name} is wrong at {case.id}: {verdict.kind}")
        if verdict.verdict == "unavailable":
            raise Unavailable(verdict.message or "this machine cannot run it")
        return verdict

    def time(self, case: Case) -> Timing:
        """The time of a kernel that gave the right answer first: a wrong one has no speed.

        Without a GPU that is said at once of a case that is only timed: it may be too large for Triton's interpreter.
        """
        self._require_build()
        if case not in self.spec.cases:
            self._state.evaluator.require_gpu()
        try:
            self.judge(case)
        except WrongResult as error:
            raise KernelError(f"{self.spec.path.name} fails its check at {case.id}, so it has no time\n{error}") from None
        timing = self._state.evaluator.time(self.spec, case)
        self._details["timing"] = plain(timing)
        self._record["timing"] = {name: value for name, value in self._details["timing"].items() if name != "samples_ms"}
        return timing

    def run(self, case: Case) -> dict[str, Tensor]:
        """What the kernel gives at a case, unjudged: output names to CPU tensors."""
        self._require_build()
        return self._state.evaluator.run(self.spec, case)

    def expected(self, case: Case) -> dict[str, Tensor]:
        """What the reference gives at a case: output names to CPU tensors."""
        if self.spec.reference is None:
            raise Unavailable(self._no_reference())
        return self._state.evaluator.expected(self.spec, case)

    def _require_build(self) -> None:
        """A kernel that does not build fails here with the compiler's first line; no compiler need not be the end of it."""
        try:
            self.build()
        except BuildError as error:
            raise KernelError(f"{self.spec.path.name} does not build: {_first_line(error)}") from None
        except Unavailable:
            return  # Triton's interpreter compiles nothing; for the others verify says the same again

    def _command(self) -> str:
        """What runs this item alone, typed in the folder that pytest was started in."""
        config = self.item.config
        file = os.path.relpath(self.item.path, config.invocation_params.dir)
        return shlex.join(["pytest", f"{file}::{self.item.name}"]) + "".join(f" {option}" for option in as_typed(config))

    def _no_reference(self) -> str:
        return f"no reference: looked for {', '.join(self.spec.looked_for)}"


@contextmanager
def short_of_a_verdict() -> Generator[None]:
    """Turn what ends a check early into pytest's failure or skip, with its sentence and without a traceback."""
    try:
        yield
    except BuildError as error:
        log = error.log.strip().removeprefix(str(error))
        raise pytest.fail.Exception("\n".join([str(error), *_cut(log)]), pytrace=False) from None
    except KernelError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    except Unavailable as error:
        raise pytest.skip.Exception(str(error)) from None


def start_record(item: pytest.Item, about: Mapping[str, Any]) -> None:
    """Give the item a record that holds no more than what it is about; anew when it is run again."""
    record = clean(dict(about))
    item.stash[RECORD] = record
    item.stash[DETAILS] = {}
    item.user_properties[:] = [entry for entry in item.user_properties if entry[0] != "kopt"]
    item.user_properties.append(("kopt", record))


def plain(record: Any) -> dict[str, Any]:
    """A record as JSON types only: tuples become lists, and NaN and inf, which JSON has not, become None."""
    return dict(
        json.loads(json.dumps(clean(record.model_dump(mode="python")), default=str, allow_nan=True), parse_constant=_none)
    )


def _none(_: str) -> None:
    """What NaN and the infinities become."""


def resources(build: Build) -> dict[str, int | None]:
    """The most that any of its kernels takes: what a row of the summary shows of a build."""
    registers = [k.registers for k in build.kernels if k.registers is not None]
    spills = [(k.spill_store_bytes or 0) + (k.spill_load_bytes or 0) for k in build.kernels if k.spill_store_bytes is not None]
    return {"registers": max(registers, default=None), "spill_bytes": max(spills, default=None)}


def sha256(path: Path | None) -> str | None:
    """The digest that an Evaluation names a source by; None when it is gone."""
    import hashlib

    try:
        return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _first_line(error: BuildError) -> str:
    return next(iter(str(error).splitlines()), "")


def _cut(log: str) -> list[str]:
    """The first lines of a compiler's log; one that it repeats, once."""
    runs = ((line, len(list(same))) for line, same in itertools.groupby(log.strip().splitlines()))
    lines = [line if count == 1 or not line else f"{line} ({count} times)" for line, count in runs]
    more = len(lines) - LOG_LINES
    return lines if more <= 0 else [*lines[:LOG_LINES], f"... and {more} lines more"]
