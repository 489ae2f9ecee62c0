"""The pytest plugin does for a plugin author what ``nanobot_tools.testing`` promises.

Each test is a run of pytest in a process of its own, with the plugin as it is installed.
"""

from __future__ import annotations

import importlib.metadata
import textwrap

import pytest

pytest_plugins = ["pytester"]

CONFIG = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

# Without what no run here needs.
QUICK = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")

TOOLS = """
from nanobot_tools import Tool, ToolError, tool
from nanobot_tools.testing import assert_error, assert_ok, assert_schema


@tool(read_only=True)
async def weather(city: str, days: int = 1) -> dict:
    "Forecast the weather."
    if city == "Atlantis":
        raise ToolError("no such city")
    return {"city": city, "days": days}


LOG = []


class Lamp(Tool):
    name, description = "lamp", "A lamp."
    parameters = {"type": "object", "properties": {}}

    async def open(self):
        LOG.append("open")

    async def aclose(self):
        LOG.append("closed")

    async def execute(self):
        LOG.append("used")
        return "light"
"""


def run(pytester: pytest.Pytester, tests: str, *options: str, config: str = CONFIG) -> pytest.RunResult:
    """Run tests beside the tools above."""
    pytester.makefile(".ini", pytest=config)
    pytester.makepyfile(tools=TOOLS, test_it="from tools import *\n" + textwrap.dedent(tests))
    return pytester.runpytest_subprocess(*QUICK, *options, timeout=100)


def passes(pytester: pytest.Pytester, tests: str, *options: str, config: str = CONFIG) -> None:
    result = run(pytester, tests, *options, config=config)
    outcomes = result.parseoutcomes()
    assert set(outcomes) == {"passed"}
    assert result.ret == 0


def test_the_plugin_is_found_by_its_entry_point() -> None:
    [entry] = importlib.metadata.entry_points(group="pytest11", name="nanobot_tools")
    assert entry.value == "nanobot_tools.testing.plugin"


def test_unused_it_imports_nothing_of_the_runtime(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("nanobot_tools")
            ours = {name for name in sys.modules if name.startswith("nanobot_tools")}
            assert ours == {"nanobot_tools", "nanobot_tools.testing", "nanobot_tools.testing.plugin"}
        """
    )
    result = pytester.runpytest_subprocess(*QUICK, "-p", "no:asyncio")
    result.assert_outcomes(passed=1)


def test_a_tool_is_tested_in_three_lines(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        async def test_weather(call_tool):
            outcome = await call_tool(weather, city="Rome", days="2")
            assert_ok(outcome, equals={"city": "Rome", "days": 2})
        """,
    )


def test_calls_are_made_as_a_models_would_be(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        async def test_arguments_as_text(call_tool):
            assert_ok(await call_tool(weather, '{"city": "Rome"}'), contains=["Rome", "1"])

        async def test_a_failing_tool(call_tool):
            outcome = await call_tool(weather, city="Atlantis")
            assert_error(outcome, kind="tool_error", contains="no such city")
            assert isinstance(outcome.exception, ToolError)

        async def test_bad_arguments(call_tool):
            assert_error(await call_tool(weather, days=[]), kind="invalid_arguments", matches="required city")

        async def test_a_name(call_tool, tool_registry):
            assert_error(await call_tool("weather"), kind="not_found")
            tool_registry.register(weather)
            assert_ok(await call_tool("weather", city="Rome"))

        async def test_a_plain_function_and_a_closure(call_tool):
            seen = []
            def note(text: str) -> None:
                seen.append(text)
            await call_tool(note, text=1)
            await call_tool(note, text="b")
            assert seen == ["1", "b"]

        async def test_both_kinds_of_arguments(call_tool):
            import pytest
            with pytest.raises(TypeError, match="not both"):
                await call_tool(weather, {"city": "Rome"}, days=1)
        """,
    )


@pytest.mark.parametrize(
    ("mark", "options"),
    [
        ("asyncio", ("-p", "no:anyio", "-p", "no:xdist")),
        ("anyio", ("-p", "no:asyncio")),
    ],
)
def test_tools_are_opened_and_closed_on_the_loop_of_the_test(
    pytester: pytest.Pytester, mark: str, options: tuple[str, ...]
) -> None:
    config = CONFIG if mark == "asyncio" else "[pytest]\nfilterwarnings = error\n"
    passes(
        pytester,
        f"""
        import asyncio
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        loops = []

        class Watched(Lamp):
            async def open(self):
                loops.append(asyncio.get_running_loop())
                await super().open()

            async def aclose(self):
                loops.append(asyncio.get_running_loop())
                assert not loops[-1].is_closed()
                await super().aclose()

        @pytest.mark.{mark}
        async def test_one(call_tool, tool_registry, tool_executor):
            lamp = tool_registry.register(Watched())
            assert LOG == []
            assert_ok(await call_tool(lamp))
            assert_ok(await call_tool(lamp))
            assert await tool_registry.execute("lamp", {{}}) == "light"
            assert LOG == ["open", "used", "used", "used"]
            loops.append(asyncio.get_running_loop())

        def test_after_it():
            assert LOG == ["open", "used", "used", "used", "closed"]
            assert len(loops) == 3 and len(set(loops)) == 1
        """,
        *options,
        config=config,
    )


def test_without_any_plugin_for_coroutines_calls_run_on_a_loop_of_their_own(
    pytester: pytest.Pytester,
) -> None:
    passes(
        pytester,
        """
        def test_one(call_tool):
            lamp = Lamp()
            assert_ok(call_tool.sync(lamp), equals="light")
            assert_ok(call_tool.sync(lamp), equals="light")
            assert_ok(call_tool.sync(weather, city="Rome"))
            assert LOG == ["open", "used", "used"]

        def test_after_it():
            assert LOG[-1] == "closed"
        """,
        "-p", "no:asyncio", "-p", "no:anyio",
        config="[pytest]\nfilterwarnings = error\n",
    )  # fmt: skip


def test_a_sync_call_on_a_loop_is_refused_with_a_reason(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import pytest

        async def test_one(call_tool):
            with pytest.raises(RuntimeError, match="await call_tool"):
                call_tool.sync(weather, city="Rome")
        """,
    )


def test_the_executor_runs_batches_over_the_registry(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        async def test_a_batch(tool_registry, tool_executor):
            tool_registry.register(weather)
            tool_registry.register(Lamp())
            calls = [{"name": "weather", "arguments": {"city": str(n)}} for n in range(50)]
            outcomes = await tool_executor.run([*calls, {"name": "lamp", "arguments": {}}])
            assert not any(outcome.is_error for outcome in outcomes)
            assert_ok(outcomes[-1], equals="light")

        async def test_its_events(tool_registry, tool_executor):
            tool_registry.register(Lamp())
            events = [e.kind async for e in tool_executor.stream([{"name": "lamp", "arguments": {}}])]
            assert events == ["started", "finished"]
        """,
    )


def test_calls_at_once_open_a_tool_once(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import asyncio

        class Slow(Lamp):
            ready = False

            async def open(self):
                await asyncio.sleep(0.05)
                self.ready = True
                await super().open()

            async def execute(self):
                assert self.ready
                return await super().execute()

        async def test_many(call_tool):
            slow = Slow()
            for outcome in await asyncio.gather(*(call_tool(slow) for _ in range(20))):
                assert_ok(outcome, equals="light")
            assert LOG.count("open") == 1
        """,
    )


def test_what_open_and_close_raise_fails_the_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        class Broken(Lamp):
            async def open(self):
                raise OSError("no current")

        class Stuck(Lamp):
            async def aclose(self):
                raise OSError("cannot be put out")

        async def test_open(call_tool):
            await call_tool(Broken())

        async def test_close(call_tool):
            await call_tool(Stuck())

        async def test_both(call_tool):
            await call_tool(Stuck())
            assert 1 == 2

        def test_close_sync(call_tool):
            call_tool.sync(Stuck())
        """,
    )
    result.assert_outcomes(failed=3, passed=1, errors=1)
    output = result.stdout.str()
    assert "OSError: no current" in output
    assert "in aclose() of the tool 'lamp'" in output
    assert "assert 1 == 2" in output


def test_tests_do_not_see_each_others_tools(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import pytest

        @pytest.mark.parametrize("n", range(3))
        async def test_one(tool_registry, n):
            assert tool_registry.tool_names == []
            tool_registry.register(weather)
        """,
    )


def test_failed_assertions_show_call_arguments_and_text(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        def test_failed(call_tool):
            assert_ok(call_tool.sync(weather, city="Rome", days="many"))

        def test_other_text(call_tool):
            assert_ok(call_tool.sync(weather, city="Rome"), contains="Paris")

        def test_other_kind(call_tool):
            assert_error(call_tool.sync(weather, city="Atlantis"), kind="timeout")

        def test_no_error(call_tool):
            assert_error(call_tool.sync(weather, city="Rome"))

        def test_schema():
            assert_schema(weather, arguments_valid=[{"days": 2}], arguments_invalid=[{"city": "Oslo"}])
        """,
    )
    result.assert_outcomes(failed=5)
    result.stdout.fnmatch_lines(
        [
            "E * AssertionError: the call failed",
            'E * call: weather({"city": "Rome", "days": "many"})',
            "E * kind: invalid_arguments",
            "E * text: *days should be integer*",
            "E * AssertionError: the text does not contain 'Paris'",
            'E * text: {"city": "Rome", "days": 1}',
            "E * AssertionError: the error is of kind 'tool_error', not 'timeout'",
            "E * AssertionError: the call succeeded",
            "E * AssertionError: the schema of weather is not as promised",
            'E * refused: {"days": 2}',
            "E * the schema's complaint: *missing required city*",
            'E * taken: {"city": "Oslo"}',
        ]
    )
    # The lines shown are those of the tests.
    assert "_asserts.py" not in result.stdout.str()


def test_servers_of_the_test_leave_nothing_behind(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import os
        import sys
        import threading
        import pytest

        def left():
            fds = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
            return fds, [t.name for t in threading.enumerate() if t.name.startswith("mcp-server")]

        @pytest.fixture
        def watched():
            yield
            print("watched")

        counts = []

        @pytest.mark.parametrize("n", range(6))
        @pytest.mark.parametrize("transport", ["stdio", "http"])
        async def test_one(mcp_server, transport, n):
            def add(a: int, b: int) -> int:
                return a + b + n
            server = mcp_server(tools=[add], transport=transport)
            async with server.connect() as connection:
                assert_ok(await connection.call_tool("add", {"a": 1, "b": 2}), equals=str(3 + n))
            counts.append(connection.pid)

        def test_after_them(mcp_server):
            assert left()[1] == []
            # The first two connections start what lasts as long as the process.
            first = left()[0]
            mcp_server(tools=[weather]).close()
            fds, threads = left()
            assert fds <= first and threads == []
        """,
    )


def test_many_processes_can_run_tests_at_once(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import pytest

        @pytest.mark.parametrize("n", range(8))
        async def test_one(mcp_server, tool_registry, call_tool, n):
            async def own(text: str) -> str:
                return f"{n}: {text}"
            async with mcp_server(tools=[own]).connect(tool_registry):
                assert_ok(await call_tool("mcp_demo_own", text="a"), equals=f"{n}: a")
        """,
        "-n", "2",
    )  # fmt: skip


def test_contradicting_options_are_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--nbtools-record", "--nbtools-check")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*cannot be given together*"])
