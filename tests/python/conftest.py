"""What all tests share: the reference's interpreter, the profile of the property tests, and the promise
that no test leaves anything behind.

The leak check looks after every test for child processes, file descriptors and threads that were not
there before it. What ends by itself gets a short grace; what may stay is named here and nowhere else.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from nanobot_tools.tools.search import GrepTool
from under_nanobot import UnderNanobot

ROOT = Path(__file__).resolve().parents[2]
GRACE = 2.0
# Pools outlive the calls that started them: the native runtime's, and those of asyncio.
LASTING_THREADS = ("nanobot-tools", "asyncio_", "ThreadPoolExecutor-")
FAILED = pytest.StashKey[bool]()
PROC = Path("/proc/self") if sys.platform == "linux" else None

# Deadlines fail on a busy machine, and a failure must come back when the test is run again.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def _reference() -> Path:
    return Path(os.environ.get("NBTOOLS_REFERENCE_PYTHON", ROOT / ".venvs/reference/bin/python"))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse to pass in continuous integration by leaving out what compares with the reference."""
    if os.environ.get("CI") and not os.access(_reference(), os.X_OK):
        raise pytest.UsageError(f"no reference interpreter at {_reference()}: run `make test`")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test knows what servers offered to another, or to the user."""
    monkeypatch.setenv("NBTOOLS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home folder in which nothing is configured: the user's own files are of no concern."""
    monkeypatch.delenv("NBTOOLS_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))


@pytest.fixture(scope="session")
def reference_python() -> Path:
    """The interpreter that has nanobot-ai, the implementation to compare with."""
    path = _reference()
    if not os.access(path, os.X_OK):
        pytest.fail(f"no reference interpreter at {path}: run `make test`, or set NBTOOLS_REFERENCE_PYTHON")
    return path


@pytest.fixture(scope="session")
def _native_runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Starts the native runtime, whose descriptors last as long as the process."""
    tool = GrepTool(workspace=tmp_path_factory.mktemp("runtime"))
    asyncio.run(tool.execute(pattern="nothing"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes which tests failed: pytest keeps their frames, and with them whatever they had open."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, _native_runtime: None
) -> Iterator[None]:
    """Fails the test that leaves a child process, a file descriptor or a thread."""
    before = everything()
    yield
    if request.node.stash.get(FAILED, False):
        return
    left = everything() - before
    deadline = time.monotonic() + GRACE
    while left and time.monotonic() < deadline:
        # Exceptions that were logged hold on to the frames that they came through.
        for phase in ("setup", "call"):
            caplog.get_records(phase).clear()
        gc.collect()
        time.sleep(0.02)
        left = everything() - before
    if left:
        pytest.fail("left behind: " + ", ".join(sorted(left)), pytrace=False)


def everything() -> set[str]:
    """A line for each thing that a test could leave behind."""
    return children() | descriptors() | threads()


def children() -> set[str]:
    """The child processes, those included that ended and were not waited for."""
    if PROC is None:
        return set()
    own, found = str(os.getpid()), set()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(entry.path, "stat").read_text(errors="replace")
        except OSError:
            continue
        # The name is in parentheses and may hold anything; behind it come the state and the parent.
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if rest.split()[1] == own:
            found.add(f"process {entry.name} ({name})")
    return found


def descriptors() -> set[str]:
    """The open file descriptors with what each is open on."""
    if PROC is None:
        return set()
    found = set()
    for name in os.listdir(PROC / "fd"):
        try:
            found.add(f"descriptor {name} on {os.readlink(PROC / 'fd' / name)}")
        except OSError:
            # The one that listed the folder is closed again.
            continue
    return found


def threads() -> set[str]:
    """The threads that are not meant to last, whoever started them."""
    # A native thread that calls Python shows up as a dummy: it is found by its own name below.
    known = [t for t in threading.enumerate() if not isinstance(t, threading._DummyThread)]
    found = {f"thread {t.name}" for t in known if not t.name.startswith(LASTING_THREADS)}
    if PROC is None:
        return found
    python = {str(t.native_id) for t in known}
    for identity in set(os.listdir(PROC / "task")) - python:
        try:
            name = (PROC / "task" / identity / "comm").read_text().strip()
        except OSError:
            continue
        if not name.startswith(LASTING_THREADS):
            found.add(f"native thread {identity} ({name})")
    return found


@pytest.fixture
def nanobot(reference_python: Path, tmp_path: Path) -> UnderNanobot:
    """Runs programs under the real nanobot."""
    return UnderNanobot(reference_python, tmp_path)
