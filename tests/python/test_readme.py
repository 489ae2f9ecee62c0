"""Every block of the README and of docs/testing.md is run, and every file and target that is named exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from nanobot_tools.cli import app
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/testing.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [(found[1], found[2]) for found in FENCE.finditer(README)]
PROGRAMS = [
    (code, BLOCKS[index + 1][1] if BLOCKS[index + 1 : index + 2] and BLOCKS[index + 1][0] == "text" else None)
    for index, (language, code) in enumerate(BLOCKS)
    if language == "python"
]
# A name in backquotes with a slash in it, without placeholders and patterns, is a path of the repository.
PATH = re.compile(r"`([\w.-]+/[\w./-]*)`")
# A directory that comes to be when something is built or run.
MADE = (".venvs", "dist")


def targets() -> set[str]:
    """The targets of the Makefile that are meant for people."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {name for line in re.findall(r"^\.PHONY:(.*)$", makefile, re.MULTILINE) for name in line.split()}


def test_the_readme_has_programs_with_their_output() -> None:
    assert PROGRAMS
    assert all(output for _, output in PROGRAMS)


def test_no_block_is_of_a_kind_that_nothing_checks() -> None:
    assert {language for language, _ in BLOCKS} <= {"python", "text", "console"}


@pytest.mark.parametrize(("code", "output"), PROGRAMS, ids=[f"program_{n}" for n in range(len(PROGRAMS))])
def test_a_program_prints_what_the_readme_says(code: str, output: str | None, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        # Not -X dev: asyncio then warns of whatever takes 0.1 s, as anything may on a busy machine.
        [sys.executable, "-W", "error", script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == output


def test_console_blocks_hold_commands_that_exist() -> None:
    commands = [line for language, code in BLOCKS if language == "console" for line in code.splitlines()]
    assert commands
    for command in commands:
        program, *arguments = command.split()
        if program == "make":
            assert set(arguments) <= targets()
        elif program == "nanobot-tools":
            known = get_command(app).commands[arguments[0]]
            options = {option for parameter in known.params for option in parameter.opts}
            assert {argument for argument in arguments if argument.startswith("--")} <= options
        else:
            assert command == "pip install ."


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_target_that_is_named_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert set(re.findall(r"`make (\w+)`", text)) <= targets()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_that_is_named_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(PATH.findall(text)) | set(re.findall(r"\]\((?!\w+:)([^)#]+)\)", text))
    missing = [name for name in named if not name.startswith(MADE) and not (ROOT / name).exists()]
    assert missing == []


def test_the_page_on_testing_holds_tests_that_pass(tmp_path: Path) -> None:
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    blocks = [(found[1], found[2]) for found in FENCE.finditer(page)]
    files = [code for language, code in blocks if language == "python"]
    commands = [line for language, code in blocks if language == "console" for line in code.splitlines()]
    assert files
    assert {language for language, _ in blocks} == {"python", "console"}
    for number, code in enumerate(files):
        (tmp_path / f"test_block_{number}.py").write_text(code, encoding="utf-8")
    config = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    (tmp_path / "pytest.ini").write_text(f"{config}filterwarnings = error\n", encoding="utf-8")
    # Twice without options: the second time from the recording.
    for command in ["pytest", "pytest", *commands]:
        program, *options = command.split()
        assert program == "pytest"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        tests = sum(code.count("def test_") for code in files)
        assert f" {tests} passed in " in done.stdout, done.stdout
        assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in (tmp_path / "cassettes").iterdir()] == ["sums.json"]


def test_the_table_of_the_benches_stands_between_its_marks() -> None:
    begin, end = README.index("<!-- bench:begin -->"), README.index("<!-- bench:end -->")
    assert begin < end
