from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_kernelopt.core.build.cache import Cache, content_key
from pytest_kernelopt.core.errors import BuildError, Unavailable
from pytest_kernelopt.core.records import Build

KEY, OTHER, THIRD = "ab" + "0" * 62, "cd" + "0" * 62, "ef" + "0" * 62


def record(key: str = KEY) -> Build:
    return Build(backend="cuda", arch="sm_90a", compiler="nvcc 13", key=key, seconds=1.5, cached=False)


class Builder:
    """Writes a library of ``size`` bytes and counts how often it was asked."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.calls = 0

    def __call__(self, folder: Path) -> tuple[str, Build]:
        self.calls += 1
        (folder / "k.so").write_bytes(b"x" * self.size)
        return "k.so", record()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def end_session(cache: Cache) -> None:
    """What the operating system leaves of a session that was killed a while ago: its folder, and no lock."""
    old = time.time() - 3600
    (cache._session / "lock").unlink()
    os.utime(cache._session, (old, old))


def age(cache: Cache, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(cache.root / key[:2] / key / "entry.json", (then, then))


def exists(cache: Cache, key: str) -> bool:
    return (cache.root / key[:2] / key / "entry.json").exists()


def test_the_second_request_is_answered_from_the_cache(cache: Cache) -> None:
    build = Builder()
    first = cache.get_or_build(KEY, build, wait=5)
    second = Cache(cache.root).get_or_build(KEY, build, wait=5)
    assert build.calls == 1
    assert (first.record.cached, first.record.seconds) == (False, 1.5)
    assert (second.record.cached, second.record.seconds) == (True, 0.0)
    assert first.path == second.path
    assert second.path is not None
    assert second.path.read_bytes() == b"x" * 10


def test_a_failure_is_not_kept(cache: Cache) -> None:
    def fails(folder: Path) -> tuple[str, Build]:
        (folder / "half.so").write_text("half")
        raise BuildError("k.cu(1): error", "log")

    with pytest.raises(BuildError):
        cache.get_or_build(KEY, fails, wait=5)
    assert not list(cache.root.glob("??/*/"))
    assert not cache.get_or_build(KEY, Builder(), wait=5).record.cached


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "entry.json").unlink(),
        lambda folder: (folder / "entry.json").write_text('{"schema": 1'),
        lambda folder: (folder / "entry.json").write_text("[]"),
        lambda folder: (folder / "k.so").unlink(),
        lambda folder: (folder / "k.so").write_bytes(b"y" * 10),
        lambda folder: (folder / "k.so").write_bytes(b""),
    ],
    ids=["no entry", "cut entry", "other entry", "no library", "changed library", "empty library"],
)
def test_a_half_written_or_damaged_entry_is_built_again(cache: Cache, damage: Callable[[Path], None]) -> None:
    build = Builder()
    cache.get_or_build(KEY, build, wait=5)
    damage(cache.root / KEY[:2] / KEY)
    assert not cache.get_or_build(KEY, build, wait=5).record.cached
    assert build.calls == 2
    assert cache.get_or_build(KEY, build, wait=5).record.cached


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    assert content_key(["ab", "c"]) != content_key(["a", "bc"])
    assert content_key(["a"]) == content_key([b"a"])
    assert content_key(["a", ""]) != content_key(["a"])


def test_the_entries_used_longest_ago_go_first_and_those_of_this_session_stay(cache: Cache) -> None:
    for key in (KEY, OTHER, THIRD):
        cache.get_or_build(key, Builder(10_000), wait=5)
    age(cache, KEY, 100)
    age(cache, OTHER, 200)
    age(cache, THIRD, 300)
    end_session(cache)
    later = Cache(cache.root, max_bytes=25_000)
    later.get_or_build(THIRD, Builder(10_000), wait=5)  # the oldest, in use again
    later.evict()
    assert (exists(later, THIRD), exists(later, OTHER), exists(later, KEY)) == (True, False, True)


def test_an_entry_that_another_living_process_uses_is_never_evicted(cache: Cache) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from pytest_kernelopt.core.build.cache import Cache\n"
        "def fails(folder): raise AssertionError\n"
        f"a = Cache(Path({str(cache.root)!r})).get_or_build({KEY!r}, fails, wait=5)\n"
        "print('using', flush=True); sys.stdin.read()\n"
    )
    cache.get_or_build(KEY, Builder(1000), wait=5)
    end_session(cache)
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "using\n"
        for session in (cache.root / "sessions").iterdir():
            os.utime(session, (0, 0))  # old enough to be judged by its lock
        Cache(cache.root, max_bytes=0).evict()
        assert exists(cache, KEY)
        user.kill()
    Cache(cache.root, max_bytes=0).evict()
    assert not exists(cache, KEY)
    assert len(list((cache.root / "sessions").iterdir())) == 2  # the killed one is cleared away, the two above are young


def test_two_processes_that_want_the_same_build_make_it_once(cache: Cache, tmp_path: Path) -> None:
    script = (
        "import time; from pathlib import Path\n"
        "from pytest_kernelopt.core.build.cache import Cache\n"
        "from pytest_kernelopt.core.records import Build\n"
        "def build(folder):\n"
        f"    open({str(tmp_path / 'built')!r}, 'a').write('x'); time.sleep(0.5); (folder / 'k.so').write_text('x')\n"
        "    return 'k.so', Build(backend='cuda', arch='a', compiler='c', key='k', seconds=1, cached=False)\n"
        f"print(Cache(Path({str(cache.root)!r})).get_or_build({KEY!r}, build, wait=20).record.cached)\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=30)[0].strip() for process in processes]
    assert sorted(answers) == ["False", "True"]
    assert (tmp_path / "built").read_text() == "x"


def test_a_build_that_was_killed_blocks_nobody(cache: Cache) -> None:
    script = (
        "import time; from pathlib import Path\n"
        "from pytest_kernelopt.core.build.cache import Cache\n"
        "def build(folder):\n"
        "    (folder / 'k.so').write_text('half'); print('building', flush=True); time.sleep(60)\n"
        f"Cache(Path({str(cache.root)!r})).get_or_build({KEY!r}, build, wait=20)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        with pytest.raises(Unavailable, match="another process has been building"):
            cache.get_or_build(KEY, Builder(), wait=0.2)
        process.send_signal(signal.SIGKILL)
    started = time.monotonic()
    assert not cache.get_or_build(KEY, Builder(), wait=20).record.cached
    assert time.monotonic() - started < 5


def test_where_the_cache_folder_cannot_be_made_builds_go_to_a_temporary_one_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "cache")
    artifact = cache.get_or_build(KEY, Builder(), wait=5)
    assert artifact.path is not None
    assert artifact.path.exists()
    assert "is not writable" in artifact.record.notes[0]


def test_a_full_disk_is_the_machines_fault(cache: Cache) -> None:
    def full(folder: Path) -> tuple[str, Build]:
        raise OSError(28, "No space left on device")

    with pytest.raises(Unavailable, match="No space left on device: free some space, or set KOPT_CACHE_DIR"):
        cache.get_or_build(KEY, full, wait=5)


def test_the_environment_names_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_CACHE_DIR", str(tmp_path / "named"))
    assert Cache().root == tmp_path / "named"


def test_scratch_folders_are_removed(cache: Cache) -> None:
    with cache.scratch() as folder:
        (folder / "big").write_text("x")
    assert not folder.exists()
