"""Short forms of the fault matrix and the soak; `make chaos` and `make soak` run them whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CHAOS = Path(__file__).resolve().parents[1] / "chaos"

#: Every fault over the transport that it tells most about, and the commonest ones over several.
TRIALS = {
    "processes": (
        "stdio",
        "killed,stopped,exits at start,hangs at initialize,hangs at list,exits in a call,closes stdout,"
        "floods,answers late",
    ),
    "hosts": (
        "stdio",
        "restarts again and again,host killed (SIGKILL),host replaced (execv),stopped for good",
    ),
    "answers": (
        "json",
        "killed,session lost (404),session lost (400),unauthorised (401),unavailable (503),connection reset,"
        "DNS fails",
    ),
    "sockets": ("sse", "half-open socket,peer vanishes,one byte a second,port closed,TLS fails"),
    "older sockets": ("legacy", "killed,port closed,peer vanishes"),
}
SOAK = ["soak.py", "--minutes", "0.4", "--seed", "1"]
COMMANDS = {
    name: ["run.py", "--transports", transport, "--faults", faults]
    for name, (transport, faults) in TRIALS.items()
}


class Run:
    """One of the programs at work, side by side with the others: most of the time they wait."""

    def __init__(self, arguments: list[str], output: Path) -> None:
        self.output = output
        with output.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=CHAOS,
                env={**os.environ},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def end(self) -> tuple[int, str]:
        """Its status and all that it printed."""
        return self.process.wait(400), self.output.read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """All that run."""
    folder = tmp_path_factory.mktemp("chaos")
    found = {name: Run(command, folder / name) for name, command in COMMANDS.items()}
    yield found
    for run in found.values():
        run.close()


def test_every_fault_is_among_those_of_the_short_form() -> None:
    listed = "import faults, hosts; print('\\n'.join([*faults.FAULTS, *hosts.HOST_FAULTS]))"
    done = subprocess.run(
        [sys.executable, "-c", listed], cwd=CHAOS, text=True, capture_output=True, check=True, timeout=60
    )
    chosen = {fault for _, faults in TRIALS.values() for fault in faults.split(",")}
    assert chosen == set(done.stdout.splitlines())


@pytest.mark.parametrize("name", TRIALS)
@pytest.mark.timeout(420)
def test_no_fault_loses_hangs_repeats_or_leaves_anything(runs: dict[str, Run], name: str) -> None:
    status, output = runs[name].end()
    assert status == 0, output


@pytest.mark.timeout(420)
def test_half_a_minute_of_faults_and_reloads_leaves_nothing(tmp_path: Path) -> None:
    run = Run(SOAK, tmp_path / "soak")
    try:
        _, output = run.end()
    finally:
        run.close()
    # Memory takes longer than this to be flat; the whole soak looks at that.
    assert "nothing that must not be" in output or "bad: ['memory grows']" in output, output
    assert "reloads" in output, output
