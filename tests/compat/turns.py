"""What a real nanobot does in a scene: batches of calls, a server killed half-way, ``/restart``, a reload."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from endpoint import Endpoint
from scene import CHANGED_LIMIT, PATIENCE, Scene, running, wait_for

HERE = Path(__file__).resolve().parent


@dataclass
class Transcript:
    """What the calls of each turn resulted in, and what else was seen.

    Attributes:
        turns: Name of the turn -> name and text of each result, in the order of the calls.
        facts: Whatever is compared beside results.
        died: The step in which nanobot ended, or ``None``.
        log: What nanobot logged.
    """

    turns: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    died: str | None = None
    log: str = ""


class Died(Exception):
    """nanobot has ended in the middle of a step."""


def play(python: Path, *, with_us: bool, installed: bool = False) -> Transcript:
    """Play the whole scene with one nanobot; for the arguments see :class:`Scene`."""
    transcript = Transcript()
    with (
        tempfile.TemporaryDirectory(prefix="nanobot-scene-") as folder,
        contextlib.closing(Endpoint()) as model,
    ):
        log = Path(folder, "log")
        play_in = Scene(Path(folder), python, model.url, with_us=with_us, installed=installed)
        with play_in as scene, log.open("wb") as output:
            try:
                with gateway(scene, output) as process:
                    Stage(scene, model, process, log, transcript).play()
            except Died as exc:
                # It happens to nanobot without us, and what comes after it is not to be seen.
                transcript.died = str(exc)
            except Exception as exc:
                exc.add_note(f"so far: {transcript.turns}")
                exc.add_note(log.read_text(encoding="utf-8", errors="replace")[-5000:])
                raise
            transcript.log = log.read_text(encoding="utf-8", errors="replace")
        transcript.facts["left over"] = wait_for_none(lambda: processes_of(play_in))
    return transcript


@contextlib.contextmanager
def gateway(scene: Scene, output: Any) -> Iterator[subprocess.Popen[bytes]]:
    """nanobot's gateway, ended as a service manager ends it."""
    command = [scene.python, "-m", "nanobot", "gateway"]
    with running(command, scene.environment(), cwd=scene.home, stdout=output, stderr=output) as process:
        yield process


class Stage:
    """The steps, one after the other."""

    def __init__(
        self,
        scene: Scene,
        model: Endpoint,
        process: subprocess.Popen[bytes],
        log: Path,
        transcript: Transcript,
    ) -> None:
        self._log = log
        self._scene = scene
        self._model = model
        self._process = process
        self._transcript = transcript

    def play(self) -> None:
        """All steps."""
        batch = [
            ("read_file", {"path": "note.txt"}),
            ("theirs_shout", {"text": "a"}),
            *([("ours_shout", {"text": "b"})] if self._scene.with_us else []),
            ("mcp_stdio_echo", {"text": "c"}),
            ("mcp_old_echo", {"text": "d"}),
            ("mcp_web_echo", {"text": "e"}),
        ]
        self.turn("a batch", batch)
        self.turn_with_kill()
        self.turn(
            "after the kill", [("mcp_stdio_echo", {"text": "again"}), ("mcp_web_echo", {"text": "too"})]
        )
        before, starts = set(servers_of(self._scene)), self._starts()
        self._transcript.facts["servers to end at a restart"] = len(before)
        self.say("/restart", "Restarting")
        self.wait(lambda: self._starts() > starts, "the restart")
        self.wait(lambda: not before & set(servers_of(self._scene)), "the end of the servers at a restart")
        self.turn("after the restart", batch)
        kept = servers_of(self._scene)
        self._scene.configure(changed=True)
        result = json.loads(self.run_script("the reload", "reload.py", "web"))
        self._transcript.facts["reload"] = {
            key: result.get(key) for key in ("ok", "added", "changed", "removed", "connected", "failed")
        }
        self.turn(
            "after the reload",
            [
                ("mcp_extra_echo", {"text": "f"}),
                ("mcp_stdio_echo", {"text": "g"}),
                ("mcp_old_echo", {"text": "h"}),
            ],
        )
        self.turn("after a limit was changed", [("mcp_stdio_sleep", {"seconds": CHANGED_LIMIT + 20})])
        self._transcript.facts["process kept over a reload"] = bool(set(kept) & set(servers_of(self._scene)))
        self._transcript.facts["tools"] = sorted(
            name for name in self._model.offered if name.startswith(("mcp_", "theirs", "ours"))
        )

    def wait(self, fact: Any, what: str) -> Any:
        """Wait until something is so, while nanobot lives."""

        def found() -> Any:
            if self._process.poll() is not None:
                raise Died(what)
            return fact()

        return wait_for(found, what)

    def _starts(self) -> int:
        return self._log.read_bytes().count(b"Agent loop started")

    def turn(self, name: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
        """One turn with these calls in one response."""
        self._model.results = []
        self.say(f"RUN {json.dumps({'calls': calls})}", "DONE")
        self._transcript.turns[name] = self._model.results

    def turn_with_kill(self) -> None:
        """A turn in the middle of whose call the server is killed."""
        calls = [("mcp_stdio_sleep", {"seconds": 8}), ("mcp_web_echo", {"text": "beside"})]
        self._model.results = []
        with self.saying(f"RUN {json.dumps({'calls': calls})}", "DONE") as done:
            # The call beside it has been answered, or waits for the one that sleeps: it is under way.
            self.wait(self._is_busy, "the call of the server that is killed")
            for pid in servers_of(self._scene):
                os.kill(pid, signal.SIGKILL)
            done()
        self._transcript.turns["a kill half-way"] = self._model.results

    def _is_busy(self) -> bool:
        # The server runs each call in a thread of its own.
        return any(len(os.listdir(f"/proc/{pid}/task")) > 1 for pid in servers_of(self._scene))

    def say(self, message: str, expected: str) -> None:
        """Say something and wait for the answer."""
        with self.saying(message, expected) as done:
            done()

    @contextlib.contextmanager
    def saying(self, message: str, expected: str) -> Iterator[Callable[[], str]]:
        """Say something; what is given waits for the answer."""
        with self._script(f"the answer to {message[:60]!r}", "chat.py", message, expected) as done:
            yield done

    def run_script(self, what: str, name: str, *arguments: str) -> str:
        """Run a script beside this one that talks to nanobot; its output."""
        with self._script(what, name, *arguments) as done:
            return done()

    @contextlib.contextmanager
    def _script(self, what: str, name: str, *arguments: str) -> Iterator[Callable[[], str]]:
        command = [self._scene.python, str(HERE / name), str(self._scene.port), *arguments]
        environment = self._scene.environment()
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with running(command, environment, **pipes) as process:

            def done() -> str:
                out, error = self._communicate(process, what)
                if not process.returncode:
                    return out.decode()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(10)
                    raise Died(what)
                raise RuntimeError(f"{what} did not come: {(out + error).decode()[-2000:]}")

            yield done

    def _communicate(self, process: subprocess.Popen[bytes], what: str) -> tuple[bytes, bytes]:
        """All that a script prints. One that waits for a nanobot that has ended is not waited for."""
        deadline = time.monotonic() + PATIENCE * 2
        while True:
            try:
                return process.communicate(timeout=1)
            except subprocess.TimeoutExpired:
                if self._process.poll() is not None:
                    raise Died(what) from None
                if time.monotonic() > deadline:
                    raise


def processes_of(scene: Scene) -> list[int]:
    """All processes that have the scene's home, whoever their parent is by now."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"HOME={scene.home}\0".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return sorted(found)


def servers_of(scene: Scene) -> list[int]:
    """The servers over stdio that run in a scene."""
    found = []
    for pid in processes_of(scene):
        with contextlib.suppress(OSError):
            if b"echo_server.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def wait_for_none(find: Any) -> list[int]:
    """Wait until nothing is found any more; what is found after all."""
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: not find(), "the end of all processes")
    found: list[int] = find()
    return found
