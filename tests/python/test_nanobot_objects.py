"""Objects of the real nanobot's classes are tools here as they are.

The script runs in the reference's interpreter, with this package on its path.
"""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import nanobot_tools

PACKAGE = Path(nanobot_tools.__file__).parents[1]


def run(reference_python: Path, script: str) -> str:
    done = subprocess.run(
        [reference_python, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_tools_of_nanobots_own_classes_are_registered_called_and_batched(reference_python: Path) -> None:
    run(
        reference_python,
        """
        import asyncio, threading
        from nanobot.agent.tools.base import Tool, ToolResult, tool_parameters
        from nanobot.agent.tools.registry import ToolRegistry as Reference
        from nanobot.providers.base import ToolCallRequest
        from nanobot_tools import ToolExecutor, ToolRegistry, is_tool_error_result

        SCHEMA = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 1}}, "required": ["x"]}

        @tool_parameters(SCHEMA)
        class Theirs(Tool):
            name = "theirs"
            description = "A tool of nanobot's own class."
            read_only = True

            async def execute(self, x):
                if x == 3:
                    raise ValueError("three")
                return ToolResult.error("Error: two") if x == 2 else f"x={x!r}"

        class Plain(Theirs):
            name = "plain"

            def execute(self, x):
                async def rest():
                    return str(threading.current_thread() is threading.main_thread())
                assert threading.current_thread() is threading.main_thread()
                return rest()

        ours, reference = ToolRegistry(), Reference()
        for registry in (ours, reference):
            registry.register(Theirs())
            registry.register(Plain())
        assert ours.get_definitions() == reference.get_definitions()

        async def main():
            odd = ['{"x": 1}', {"arguments": {"x": 1}}, {}]
            for arguments in [{"x": "5"}, {"x": 2}, {"x": 3}, {"x": 0}, *odd]:
                mine = await ours.execute("theirs", arguments)
                theirs = await reference.execute("theirs", arguments)
                assert mine == theirs, (mine, theirs)
                assert is_tool_error_result(mine) == (getattr(theirs, "is_error", False) is True)
            assert await ours.execute("plain", {"x": 1}) == "True"
            calls = [ToolCallRequest(id=str(i), name="theirs", arguments={"x": i}) for i in range(1, 5)]
            executor = ToolExecutor(ours)
            assert [len(batch) for batch in executor.plan(calls)] == [4]
            outcomes = await executor.run(calls)
            assert [o.error_kind for o in outcomes] == [None, "tool_error", "exception", None], outcomes

        asyncio.run(main())
        """,
    )


def test_nanobots_own_built_in_tools_work_here(reference_python: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    run(
        reference_python,
        f"""
        import asyncio
        from pathlib import Path
        from nanobot.agent.tools.filesystem import ListDirTool, ReadFileTool, WriteFileTool
        from nanobot.agent.tools.registry import ToolRegistry as Reference
        from nanobot_tools import ToolCall, ToolExecutor, ToolRegistry

        ours, reference = ToolRegistry(), Reference()
        for cls in (ListDirTool, ReadFileTool, WriteFileTool):
            for registry in (ours, reference):
                registry.register(cls(workspace=Path({str(tmp_path)!r})))
        assert ours.get_definitions() == reference.get_definitions()

        async def main():
            reads = [{{"path": "a.txt", "limit": "1"}}, {{"path": "missing"}}, {{"pth": "a.txt"}}]
            for name, arguments in [("list_dir", {{"path": "."}}), *(("read_file", read) for read in reads)]:
                assert await ours.execute(name, arguments) == await reference.execute(name, arguments)
            executor = ToolExecutor(ours)
            calls = [ToolCall("read_file", {{"path": "a.txt"}}),
                     ToolCall("write_file", {{"path": "b.txt", "content": "new"}}),
                     ToolCall("list_dir", {{"path": "."}})]
            assert not any(o.is_error for o in await executor.run(calls))

        asyncio.run(main())
        """,
    )
    assert (tmp_path / "b.txt").read_text(encoding="utf-8") == "new"


def test_both_packages_see_the_same_request(reference_python: Path) -> None:
    run(
        reference_python,
        """
        import nanobot_tools
        from nanobot_tools import RequestContext, current_request_context, request_context
        from nanobot.agent.tools import context as theirs

        with request_context(RequestContext(channel="c", chat_id="1", session_key="s")) as ctx:
            assert theirs.current_request_context() is ctx
            assert theirs.current_request_session_key() == "s"
        assert theirs.current_request_context() is None
        other = theirs.RequestContext(channel="d", chat_id="2")
        with theirs.request_context(other):
            assert current_request_context() is other
        """,
    )


def test_a_plugin_written_for_nanobot_is_loaded_beside_ours(reference_python: Path) -> None:
    run(
        reference_python,
        """
        import asyncio
        from types import SimpleNamespace
        from nanobot.agent.tools.base import Tool
        from nanobot_tools import ToolContext, ToolLoader, ToolRegistry, is_tool_error_result
        from nanobot_tools import loader as module

        class Plugin(Tool):
            name = "plugin"
            description = "From before results had a status."
            parameters = {"type": "object", "properties": {}}

            async def execute(self, **kwargs):
                return "Error: the old way"

        entry = SimpleNamespace(name="plugin", value="x:Plugin", load=lambda: Plugin, dist=None)
        module.entry_points = lambda *, group: [entry]
        registry = ToolRegistry()
        names = ToolLoader().load(ToolContext(config=None, workspace="."), registry)
        assert "plugin" in names and "grep" in names, names
        assert isinstance(registry.get("plugin"), Plugin)
        assert is_tool_error_result(asyncio.run(registry.execute("plugin", {})))
        """,
    )
