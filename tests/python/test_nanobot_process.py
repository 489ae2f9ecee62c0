"""A real nanobot process with the package: the same results as without, and servers that recover.

All versions of nanobot are tried by `make compat`.
"""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

COMPAT = Path(__file__).resolve().parents[1] / "compat"
#: Against hanging: the scene is played twice, and takes about a minute on an idle machine.
PATIENCE = 500


@pytest.mark.timeout(PATIENCE + 100)
def test_a_gateway_gives_the_same_results_with_us_and_recovers(reference_python: Path) -> None:
    command = [sys.executable, COMPAT / "run.py", "--versions", "0.3.5", "--pythons", reference_python]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            out, error = process.communicate(timeout=PATIENCE)
        finally:
            # Interrupted, and not killed: it has processes to end.
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=60)
    assert process.returncode == 0, out + error
    assert "nanobot-ai 0.3.5" in out


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module that plays and compares."""
    names = {path.stem for path in COMPAT.glob("*.py")}
    monkeypatch.syspath_prepend(COMPAT)
    before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    yield importlib.import_module("run")
    for name in names & sys.modules.keys():
        del sys.modules[name]
    sys.modules.update(before)


def with_us(run: Any) -> Any:
    """What a scene gives in which all is as it has to be."""
    log = f"Agent loop started\nnanobot-tools 0.1.0: nanobot 0.3.5, {run._PARTS}" * 2
    facts = {
        "reload": run.RELOADED,
        "servers to end at a restart": 1,
        "process kept over a reload": True,
        "left over": [],
    }
    return run.Transcript({turn: list(results) for turn, results in run.WITH_US.items()}, facts, log=log)


def without_us(run: Any, until: int | None = None) -> Any:
    """The same without the package; nanobot may end after some of the turns."""
    found = with_us(run)
    turns = list(found.turns.items())[:until]
    found.turns = {turn: [one for one in results if one[0] != "ours_shout"] for turn, results in turns}
    found.log = "Agent loop started\n" * 2
    if until is not None:
        found.facts = {"left over": []}
        found.died = run.ENDS["0.2.2"][0]
    return found


def lose(run: Any, transcript: Any) -> None:
    transcript.log = transcript.log.replace(run._PARTS, "nothing active\n", 1)


def skip_a_part(run: Any, transcript: Any) -> None:
    transcript.log = transcript.log.replace(", executor", "; skipped: something")


def leave_a_process(run: Any, transcript: Any) -> None:
    transcript.facts["left over"] = [7]


def ignore_the_limit(run: Any, transcript: Any) -> None:
    transcript.turns["after a limit was changed"] = [("mcp_stdio_sleep", "slept 23 s")]


def fail_to_reload(run: Any, transcript: Any) -> None:
    transcript.facts["reload"] = {**run.RELOADED, "failed": ["extra"]}


def stay_dead(run: Any, transcript: Any) -> None:
    transcript.turns["after the kill"] = [("mcp_stdio_echo", "(failed)"), ("mcp_web_echo", "too")]


def lose_a_turn(run: Any, transcript: Any) -> None:
    transcript.turns["after the restart"] = []


def end(run: Any, transcript: Any) -> None:
    transcript.died = "the reload"


FAULTS = (lose, skip_a_part, leave_a_process, ignore_the_limit, fail_to_reload, stay_dead, lose_a_turn, end)


def test_a_scene_in_which_all_is_well_has_no_complaints(run: Any) -> None:
    assert run.compare("0.3.5", without_us(run), with_us(run)) == []


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("until", [None, 1], ids=["nanobot gets through", "nanobot ends early"])
def test_a_fault_of_ours_is_noticed_however_far_nanobot_gets(
    run: Any, fault: Callable[[Any, Any], None], until: int | None
) -> None:
    transcript = with_us(run)
    fault(run, transcript)
    assert run.compare("0.2.2", without_us(run, until), transcript) != []


def test_nanobot_may_end_by_itself_only_where_it_is_known_to(run: Any) -> None:
    assert run.compare("0.2.2", without_us(run, 1), with_us(run)) == []
    assert run.compare("0.3.5", without_us(run, 1), with_us(run)) != []


def test_a_scene_without_us_has_nothing_of_ours(run: Any) -> None:
    theirs = without_us(run)
    theirs.log = with_us(run).log
    assert run.compare("0.3.5", theirs, with_us(run)) == ["without us is not without us"]
