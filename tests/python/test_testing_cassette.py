"""A cassette is recorded once from a real server, played back without it, and holds no secret."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import textwrap
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from mcp_servers import asking, echo
from nanobot_tools import MCPCallbacks, MCPConnection, MCPError, ToolRegistry, ToolTimeoutError
from nanobot_tools.testing import CallTool, CassetteError, ScriptedServer, assert_error, assert_ok
from nanobot_tools.testing._cassette import Deck, Tape, cassette
from nanobot_tools.testing._secrets import Masker, secrets_of, shown_entry

pytest_plugins = ["pytester"]

Open = Callable[..., AbstractAsyncContextManager[MCPConnection]]

CONFIG = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

#: A server that cannot be started: whoever plays back does not need one.
GONE: dict[str, Any] = {"command": "no-such-server-anywhere"}

ECHO = """
import os, sys
import pytest
from nanobot_tools import MCPError
from nanobot_tools.testing import assert_error, assert_ok

ENTRY = {
    "command": os.environ.get("ECHO", sys.executable),
    "args": ["-m", "nanobot_tools.testing.echo_server"],
    "env": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
}
"""


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Opens a cassette as the fixture does; the deck says in which run of the tests."""

    def connect(name: str, entry: Any, deck: Deck | None = None, **more: Any) -> Any:
        return cassette(tmp_path / f"{name}.json", entry, deck or Deck(), name=name, **more)

    return connect


def run(pytester: pytest.Pytester, tests: str, *options: str) -> pytest.RunResult:
    pytester.makefile(".ini", pytest=CONFIG)
    pytester.makepyfile(test_it=ECHO + textwrap.dedent(tests))
    quick = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    return pytester.runpytest_subprocess(*quick, *options, timeout=100)


def test_a_real_server_is_recorded_once_and_not_needed_again(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = """
        async def test_sums(mcp_cassette, tool_registry, call_tool):
            async with mcp_cassette("echo", ENTRY, registry=tool_registry) as connection:
                assert connection.server_info == ("echo", "1.0.0")
                assert_ok(await call_tool("mcp_echo_add", a="1", b=2), equals="3")
                assert_error(await call_tool("mcp_echo_fail", text="no"), contains="no")
                with pytest.raises(MCPError, match="no tool 'other'"):
                    await connection.call_tool("other")
        """
    result = run(pytester, tests)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*MCP cassettes*", "recorded *cassettes*echo.json (4 answers)"])
    recorded = (pytester.path / "cassettes" / "echo.json").read_bytes()
    monkeypatch.setenv("ECHO", "no-such-server-anywhere")
    result = run(pytester, tests)
    result.assert_outcomes(passed=1)
    assert "MCP cassettes" not in result.stdout.str()
    assert (pytester.path / "cassettes" / "echo.json").read_bytes() == recorded


def test_a_request_that_is_not_recorded_is_named_and_fails_the_test(pytester: pytest.Pytester) -> None:
    tests = """
        async def test_sums(mcp_cassette, tool_registry):
            async with mcp_cassette("echo", ENTRY, registry=tool_registry) as connection:
                b = int(os.environ.get("B", "2"))
                await tool_registry.execute("mcp_echo_add", {"a": 1, "b": b})
        """
    run(pytester, tests).assert_outcomes(passed=1)
    pytester._monkeypatch.setenv("B", "5")
    result = run(pytester, tests)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            'E *not on the cassette *echo.json: tools/call add {"a": 1, "b": 5} (recorded: *"b": 2*',
            "E *If the test was changed, run pytest with --nbtools-record to record it anew.",
        ]
    )
    result = run(pytester, tests, "--nbtools-record")
    result.assert_outcomes(passed=1)
    run(pytester, tests).assert_outcomes(passed=1)


CHANGING = """
        async def test_it(mcp_cassette, mcp_server):
            now = os.environ.get("NOW", "old")
            def tell() -> str:
                return f"the {now} answer"
            def clock() -> str:
                return now
            def fresh() -> str:
                return ""
            tools = [tell, clock, fresh] if now == "new" else [tell, clock]
            server = mcp_server(tools=tools, instructions=f"{now} rules")
            async with mcp_cassette("told", server.entry, unstable=["clock"]) as connection:
                await connection.call_tool("tell")
                await connection.call_tool("clock")
        """


def test_checking_says_what_has_changed_and_writes_nothing(pytester: pytest.Pytester) -> None:
    run(pytester, CHANGING).assert_outcomes(passed=1)
    file = pytester.path / "cassettes" / "told.json"
    recorded = file.read_bytes()
    run(pytester, CHANGING, "--nbtools-check").assert_outcomes(passed=1)
    pytester._monkeypatch.setenv("NOW", "new")
    run(pytester, CHANGING).assert_outcomes(passed=1)
    result = run(pytester, CHANGING, "--nbtools-check")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *the server has changed since *told.json was recorded*",
            "E *the server's account of itself:",
            'E *-  "instructions": "old rules",',
            'E *+  "instructions": "new rules",',
            "E *tools/list:",
            'E *+ *"name": "fresh"*',
            "E *tools/call tell {}:",
            'E *- *"text": "the old answer"*',
            'E *+ *"text": "the new answer"*',
            "E *If that is as it should be, run pytest with --nbtools-record to record it anew.",
        ]
    )
    assert "tools/call clock" not in result.stdout.str()
    assert file.read_bytes() == recorded


def test_recording_anew_tells_what_has_changed(pytester: pytest.Pytester) -> None:
    run(pytester, CHANGING).assert_outcomes(passed=1)
    pytester._monkeypatch.setenv("NOW", "new")
    result = run(pytester, CHANGING, "--nbtools-record")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["the server has changed since *told.json was recorded:", '+ *"text": "the new answer"*']
    )
    assert "the new answer" in (pytester.path / "cassettes" / "told.json").read_text(encoding="utf-8")
    run(pytester, CHANGING, "--nbtools-check").assert_outcomes(passed=1)


def test_what_cannot_be_checked_is_said(pytester: pytest.Pytester) -> None:
    result = run(pytester, CHANGING, "--nbtools-check")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *there is no *told.json to check*"])


def test_tests_that_fail_leave_no_recording(pytester: pytest.Pytester) -> None:
    tests = """
        async def test_it(mcp_cassette):
            async with mcp_cassette("echo", ENTRY):
                assert 1 == 2
        """
    run(pytester, tests).assert_outcomes(failed=1)
    assert not (pytester.path / "cassettes").exists()


def test_tests_of_a_run_may_share_a_cassette(pytester: pytest.Pytester) -> None:
    tests = """
        @pytest.mark.parametrize("n", [1, 2, 3])
        async def test_it(mcp_cassette, n):
            async with mcp_cassette("echo", ENTRY) as connection:
                assert_ok(await connection.call_tool("add", {"a": n, "b": 0}), equals=str(n))
        """
    run(pytester, tests).assert_outcomes(passed=3)
    run(pytester, tests).assert_outcomes(passed=3)
    run(pytester, tests, "--nbtools-check").assert_outcomes(passed=3)
    run(pytester, tests, "--nbtools-record").assert_outcomes(passed=3)
    run(pytester, tests, "-n", "2").assert_outcomes(passed=3)


@pytest.mark.parametrize("name", ["", "../a", "a/b", "a\\b", ".hidden"])
def test_a_name_that_leads_elsewhere_is_refused(mcp_cassette: Open, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        mcp_cassette(name, GONE)


async def test_lists_resources_and_prompts_are_played_back(mcp_server: Any, opened: Open) -> None:
    server: ScriptedServer = mcp_server(
        resources={"memo://one": "text"}, prompts={"greet": lambda who: f"Hi {who}"}, transport="http"
    )

    async def use(entry: Any, registry: ToolRegistry) -> list[Any]:
        async with opened("memo", entry, registry=registry) as connection:
            return [
                registry.tool_names,
                await connection.list_resources(),
                await connection.list_prompts(),
                await connection.read_resource("memo://one"),
                await connection.get_prompt("greet", {"who": "Bo"}),
                connection.capabilities,
            ]

    recorded = await use(server.entry, ToolRegistry())
    assert await use(GONE, ToolRegistry()) == recorded
    assert recorded[0] == ["mcp_memo_resource_memo_one", "mcp_memo_prompt_greet"]


async def test_repeated_calls_are_played_in_order_and_no_more_often(mcp_server: Any, opened: Open) -> None:
    numbers = iter("abc")

    def following() -> str:
        return next(numbers)

    async def call(connection: MCPConnection) -> str:
        return assert_ok(await connection.call_tool("following"))

    server = mcp_server(tools=[following])
    async with opened("steps", server.entry) as connection:
        assert [await call(connection), await call(connection)] == ["a", "b"]
    async with opened("steps", GONE) as connection:
        assert [await call(connection), await call(connection)] == ["a", "b"]
        assert len(await connection.list_tools()) == len(await connection.list_tools()) == 1

    async def once_more() -> None:
        async with opened("steps", GONE) as connection:
            for _ in range(2):
                await call(connection)
            with pytest.raises(MCPError, match="not on the cassette"):
                await call(connection)

    with pytest.raises(CassetteError, match="it is there 2 times"):
        await once_more()


async def test_a_swallowed_request_is_noted_on_the_tests_own_failure(mcp_server: Any, opened: Open) -> None:
    server = mcp_server(tools=[steady])
    async with opened("noted", server.entry):
        pass

    async def swallow() -> None:
        async with opened("noted", GONE) as connection:
            with pytest.raises(MCPError):
                await connection.call_tool("steady")
            raise AssertionError("mine")

    with pytest.raises(AssertionError, match="mine") as failure:
        await swallow()
    assert "tools/call steady {} (no tools/call is recorded)" in failure.value.__notes__[0]


def steady() -> str:
    return "a"


SECRET, USER, PASSWORD, HEADER = "k-5ecret/+value", "some user", "p@ss:word!", "header-token-1"


async def test_no_secret_gets_into_a_recording(
    mcp_server: Any, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDDEN_KEY", "from-the-environment")
    leaks = [SECRET, USER, PASSWORD, HEADER, "from-the-environment", "asked for"]
    leaks.append(base64.b64encode(SECRET.encode()).decode())
    leaks.append("k-5ecret%2F%2Bvalue")

    def leak(text: str) -> dict[str, Any]:
        return {"all": leaks, f"key {SECRET}": f"in {text} and {SECRET}, {HEADER}"}

    server = mcp_server(tools=[leak], instructions=f"Use {SECRET}.", transport="http")
    url = (
        server.entry["url"].replace("//", "//some%20user:p%40ss%3Aword%21@") + "?api_key=k-5ecret%2F%2Bvalue"
    )
    headers = {"Authorization": f"Bearer {HEADER}", "X-Other": "${HIDDEN_KEY}"}
    entry = {**server.entry, "url": url, "headers": headers}
    async with opened("leaky", entry, mask=["asked for"]) as connection:
        first = await connection.call_tool("leak", {"text": f"my {SECRET}"})
    assert server.calls == [("leak", {"text": f"my {SECRET}"})]
    # Another machine has other secrets, and a test that sends one asks for the same as before.
    other = {**entry, "url": url.replace("k-5ecret%2F%2Bvalue", "another-key"), "command": None}
    async with opened("leaky", other) as connection:
        assert await connection.call_tool("leak", {"text": "my another-key"}) == first
    recorded = (tmp_path / "leaky.json").read_text(encoding="utf-8")
    for leaked in leaks:
        assert leaked not in recorded
    assert "k-5ecret" not in json.dumps(first)
    content = json.loads(recorded)
    host = server.entry["url"].partition("//")[2]
    assert content["entry"]["url"] == f"http://***@{host}?api_key=***"
    assert content["entry"]["headers"] == {"Authorization": "***", "X-Other": "***"}
    assert content["server"]["instructions"] == "Use ***."


def test_secrets_are_known_by_their_place_and_name() -> None:
    entry = {
        "command": "/opt/tools/bin/server",
        "args": ["--api-key", "abcd", "--token=efgh", "--level", "info", "/srv/data"],
        "env": {"PIN_SECRET": "1234", "DEBUG": "1", "MODE": "verbose", "LONG": "a long value"},
    }
    secrets = secrets_of(entry)
    assert secrets == {"abcd", "efgh", "1234", "a long value"}
    shown = shown_entry(entry, Masker(secrets))
    assert shown == {
        "command": "server",
        "args": ["--api-key", "***", "--token=***", "--level", "info", ".../data"],
        "env": dict.fromkeys(entry["env"], "***"),
    }
    assert Masker([])({"a": ["b"]}) == {"a": ["b"]}
    basic = base64.b64encode(b"someone:pass-phrase").decode()
    assert {"pass-phrase", "someone"} <= secrets_of({"headers": {"Authorization": f"Basic {basic}"}})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("no JSON", "JSONDecodeError"),
        ('{"format": 2}', "its format is 2"),
        ("[]", "TypeError"),
        (
            '{"format": 1, "entry": {}, "server": {}, '
            '"requests": [{"method": "m", "params": {}, "answers": []}]}',
            "m has no answer",
        ),
    ],
)
async def test_a_file_that_is_no_recording_is_named(
    tmp_path: Path, opened: Open, content: str, complaint: str
) -> None:
    file = tmp_path / "broken.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(CassetteError, match=complaint) as failure:
        async with opened("broken", GONE):
            pass
    assert str(file) in str(failure.value)
    assert "--nbtools-record" in str(failure.value)
    async with opened("broken", echo(), Deck(mode="record")):
        pass
    assert Tape.load(file).about["serverInfo"]["name"] == "echo"


async def test_a_server_that_breaks_down_is_not_recorded(
    mcp_server: Any, opened: Open, tmp_path: Path
) -> None:
    server = mcp_server(tools=[steady])
    server.delay("steady", 60)

    async def end() -> None:
        async with opened("lost", server.entry) as connection:
            call = asyncio.create_task(connection.call_tool("steady"))
            await server.wait_for_calls(1)
            server.exit(3)
            with pytest.raises(MCPError, match="exit status: 3"):
                await call

    async def wait_too_long() -> None:
        async with opened("lost", {**server.entry, "toolTimeout": 0.2}) as connection:
            with pytest.raises(ToolTimeoutError):
                await connection.call_tool("steady")

    for use in (end, wait_too_long):
        with pytest.raises(CassetteError, match="could not be recorded: tools/call steady"):
            await use()
    assert os.listdir(tmp_path) == []


async def test_options_of_the_entry_hold_while_playing(opened: Open) -> None:
    entry = echo(enabledTools=["add"])
    for config in (entry, {**GONE, "enabledTools": ["add"]}):
        registry = ToolRegistry()
        async with opened("part", config, registry=registry):
            assert registry.tool_names == ["mcp_part_add"]


async def test_a_server_may_ask_its_client_while_it_is_recorded(opened: Open) -> None:
    def sample(server: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"}

    call = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
    async with opened("asks", asking(), callbacks=MCPCallbacks(sampling=sample)) as connection:
        first = await connection.call_tool("ask", call)
    assert_ok(first, contains='"yes"')
    async with opened("asks", GONE) as connection:
        assert await connection.call_tool("ask", call) == first


async def test_calls_at_once_are_recorded_and_played(
    opened: Open, tool_registry: ToolRegistry, call_tool: CallTool
) -> None:
    for entry in (echo(), GONE):
        async with opened("many", entry, registry=tool_registry) as connection:
            calls = [call_tool("mcp_many_add", a=n, b=1) for n in range(30)]
            for n, outcome in enumerate(await asyncio.gather(*calls)):
                assert_ok(outcome, equals=str(n + 1))
            assert_error(await call_tool("mcp_many_fail", text="x"), contains="x")
            assert connection.pid is None


def test_recordings_have_the_permissions_of_other_files(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "deep" / "a.json")
    tape.save()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.json"]
    if os.name == "posix":
        assert tape.path.stat().st_mode & 0o777 == 0o644
