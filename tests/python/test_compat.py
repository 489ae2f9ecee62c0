"""An unmodified nanobot uses this package where it looks as expected, and goes back to its own ways on demand."""

# ruff: noqa: E501 - programs for nanobot

from __future__ import annotations

import json

import pytest
from under_nanobot import UnderNanobot, distribution

DOORS = {
    "before nanobot": "import nanobot_tools; nanobot_tools.install(); import nanobot.agent.loop",
    "after nanobot": "import nanobot.agent.loop, nanobot_tools; nanobot_tools.install()",
    "by nanobot's loader": (
        "import nanobot.agent.loop; from nanobot.agent.tools.loader import ToolLoader; "
        "ToolLoader()._discover_plugins()"
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_each_door_leads_to_the_same(nanobot: UnderNanobot, door: str) -> None:
    nanobot.run(
        DOORS[door]
        + """
from nanobot_tools.compat import report
state = report()
assert state.active == ("registry", "loader", "mcp", "executor"), state
assert not state.skipped, state.skipped
assert {status for _, _, status, _ in state.targets} <= {"active", "absent", "off"}, state.targets
"""
    )
    assert nanobot.log.count("active: registry, loader, mcp, executor") == 1


def test_installing_again_changes_nothing_and_uninstalling_brings_the_old_functions_back(
    nanobot: UnderNanobot,
) -> None:
    nanobot.run(
        """
        import nanobot.agent.loop
        from nanobot.agent import runner
        from nanobot.agent.tools import base, execution, loader, mcp, registry
        import nanobot_tools

        def functions():
            return [
                base.Schema.__dict__["validate_json_schema_value"].__func__, base.Tool.cast_params,
                registry.ToolRegistry.prepare_call, registry.ToolRegistry.get_definitions,
                loader._SKIP_MODULES, loader.ToolLoader.load, mcp.connect_mcp_servers,
                mcp.MCPToolWrapper.execute, mcp.MCPProvider.reload, execution.execute_tool_calls,
                runner.execute_tool_calls,
            ]

        before = functions()
        nanobot_tools.install()
        ours = functions()
        assert not any(a is b for a, b in zip(before, ours))
        # A function that others imported by name is theirs no more.
        assert runner.execute_tool_calls is execution.execute_tool_calls
        nanobot_tools.install()
        assert all(a is b for a, b in zip(ours, functions()))
        assert base.Schema.validate_json_schema_value(5, {"type": "string"}) == ["parameter should be string"]
        state = nanobot_tools.uninstall()
        assert not state.installed
        assert all(a is b for a, b in zip(before, functions()))
        nanobot_tools.install()
        assert not any(a is b for a, b in zip(before, functions()))
        """
    )


def test_what_does_not_look_as_expected_is_left_alone_and_named(nanobot: UnderNanobot) -> None:
    nanobot.run(
        """
        import functools
        import nanobot.agent.loop
        from nanobot.agent.tools import base, registry
        from nanobot.agent.tools.mcp import MCPProvider
        import nanobot_tools

        def cast_params(self, params, strict=False): ...
        base.Tool.cast_params = cast_params
        taken = functools.wraps(registry.ToolRegistry.prepare_call)(lambda *a: None)
        registry.ToolRegistry.prepare_call = taken
        MCPProvider.reload = "odd"
        state = nanobot_tools.install()
        assert base.Tool.cast_params is cast_params
        assert registry.ToolRegistry.prepare_call is taken
        reasons = dict(state.skipped)
        assert reasons == {
            "nanobot.agent.tools.base.Tool.cast_params":
                "its parameters are (self, params, strict=False), where (self, params) is expected",
            "nanobot.agent.tools.registry.ToolRegistry.prepare_call": "somebody else has replaced it",
            "nanobot.agent.tools.mcp.MCPProvider.reload": "it is a str, where a function is expected",
        }, reasons
        assert state.active == ("registry", "loader", "mcp", "executor")
        """
    )
    assert "skipped: nanobot.agent.tools.base.Tool.cast_params (its parameters are" in nanobot.log


def test_a_fault_of_ours_costs_one_target_and_no_import(nanobot: UnderNanobot) -> None:
    nanobot.run(
        """
        import dataclasses
        import nanobot_tools
        from nanobot_tools.compat import _install

        def faulty(original, module):
            raise RuntimeError("no way")

        _install.TARGETS = tuple(
            dataclasses.replace(t, factory=faulty) if t.name == "Tool.cast_params" else t for t in _install.TARGETS
        )
        nanobot_tools.install()
        import nanobot.agent.loop
        state = nanobot_tools.install()
        assert state.skipped == (("nanobot.agent.tools.base.Tool.cast_params", "RuntimeError: no way"),), state
        """
    )


@pytest.mark.parametrize("door", DOORS)
def test_an_unknown_nanobot_is_left_alone_with_one_warning(nanobot: UnderNanobot, door: str) -> None:
    nanobot.run(
        "import nanobot; nanobot.__version__ = '0.4.0'\n"
        "from nanobot_tools import _native; import nanobot.agent.tools.registry as r\n"
        "before = r.ToolRegistry.prepare_call\n"
        + DOORS[door]
        + """
from nanobot_tools.compat import report
state = report()
assert not state.active, state
assert r.ToolRegistry.prepare_call is before
assert "0.4.0 is not known" in str(state), state
"""
    )
    assert nanobot.log.count("nothing active: nanobot 0.4.0 is not known") == 1


def test_switches_turn_off_all_or_parts(nanobot: UnderNanobot) -> None:
    program = (
        DOORS["before nanobot"]
        + "; import nanobot.agent.tools.search\nfrom nanobot_tools.compat import report; print(report().active)"
    )
    assert nanobot.run(program, NBTOOLS="off").strip() == "()"
    parts = {"NBTOOLS_MCP": "sdk", "NBTOOLS_REGISTRY": "off", "NBTOOLS_NATIVE_TOOLS": "on"}
    assert nanobot.run(program, **parts).strip() == "('loader', 'executor', 'native-tools')"
    nanobot.run(program, NBTOOLS_EXECUTOR="perhaps")
    assert "NBTOOLS_EXECUTOR=perhaps is neither on nor off" in nanobot.log


def test_what_we_log_is_silenced_with_nanobot(nanobot: UnderNanobot) -> None:
    nanobot.run(
        """
        import logging, sys
        import nanobot.agent.loop
        from loguru import logger
        import nanobot_tools

        seen = []
        logger.remove()
        logger.add(lambda message: seen.append((message.record["level"].name, message.record["message"])))
        nanobot_tools.install()
        seen.clear()
        log = logging.getLogger("nanobot_tools.mcp")
        log.warning("a server of %s", "{braces}")
        try:
            1 / 0
        except ZeroDivisionError:
            log.exception("it failed")
        assert seen == [("WARNING", "a server of {braces}"), ("ERROR", "it failed")], seen
        logger.disable("nanobot")
        log.error("nobody hears this")
        assert len(seen) == 2
        nanobot_tools.uninstall()
        logger.enable("nanobot")
        logging.basicConfig(stream=sys.stdout)
        log.error("by logging again")
        assert len(seen) == 2
        """
    )


def test_finding_tools_imports_no_mcp_sdk_when_installed_first(nanobot: UnderNanobot) -> None:
    program = """
        import sys
        import nanobot_tools
        nanobot_tools.install()
        from nanobot.agent.tools.loader import ToolLoader
        found = [cls.__name__ for cls in ToolLoader().discover()]
        assert "GrepTool" in found and len(found) > 15, found
        print("mcp" in sys.modules)
        """
    assert nanobot.run(program).strip() == "False"
    assert nanobot.run(program, NBTOOLS="off").strip() == "True"


# -- both worlds -----------------------------------------------------------------------------------------

THEIRS = """
    from nanobot.agent.tools.base import Tool, ToolResult, tool_parameters
    from nanobot.agent.tools.context import current_request_context

    @tool_parameters({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
    class Theirs(Tool):
        name = "theirs"
        description = "Written on nanobot's Tool."
        async def execute(self, x):
            if x < 0:
                return ToolResult.error("theirs refuses")
            return f"{current_request_context().chat_id}:{x + 1}"
"""
OURS = """
    from nanobot_tools import Tool, ToolResult, current_request_context, tool_parameters

    @tool_parameters({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
    class Ours(Tool):
        name = "ours"
        description = "Written on our Tool."
        async def execute(self, x):
            if x < 0:
                return ToolResult.error("ours refuses")
            return f"{current_request_context().chat_id}:{x + 1}"
"""


@pytest.mark.parametrize("switch", ["on", "off"])
@pytest.mark.parametrize("order", [("a", "z"), ("z", "a")], ids=["theirs first", "ours first"])
def test_plugins_of_both_worlds_work_beside_each_other(
    nanobot: UnderNanobot, order: tuple[str, str], switch: str
) -> None:
    theirs, ours = (f"{letter}-plugin" for letter in order)
    distribution(
        nanobot.site, theirs, {"nanobot.tools": {"theirs": "theirs_plugin:Theirs"}}, theirs_plugin=THEIRS
    )
    distribution(nanobot.site, ours, {"nanobot.tools": {"ours": "ours_plugin:Ours"}}, ours_plugin=OURS)
    nanobot.run(
        """
        import asyncio, copy, pickle
        from types import SimpleNamespace
        from nanobot.agent.tools.context import RequestContext, bind_request_context
        from nanobot.agent.tools.loader import ToolLoader
        from nanobot.agent.tools.registry import ToolRegistry, is_tool_error_result
        from nanobot.agent.tools.base import Tool

        registry = ToolRegistry()
        names = ToolLoader(test_classes=[]).load(SimpleNamespace(), registry)
        assert sorted(names) == ["ours", "theirs"], names
        bind_request_context(RequestContext(channel="c", chat_id="chat"))

        async def main():
            for name in names:
                assert isinstance(registry.get(name), Tool)
                assert await registry.execute(name, {"x": "4"}) == "chat:5"
                refused = await registry.execute(name, {"x": -1})
                assert is_tool_error_result(refused), refused
                assert refused.startswith(f"{name} refuses"), refused
                for copied in (copy.deepcopy(refused), pickle.loads(pickle.dumps(refused))):
                    assert copied == refused and is_tool_error_result(copied)

        asyncio.run(main())
        """,
        NBTOOLS=switch,
    )


@pytest.mark.parametrize("first", ["nanobot_tools", "nanobot.agent.tools.base"])
def test_our_tools_are_tools_to_nanobot_whichever_is_imported_first(
    nanobot: UnderNanobot, first: str
) -> None:
    nanobot.run(
        f"""
        import {first}
        import nanobot.agent.tools.base as theirs
        import nanobot_tools as ours
        assert issubclass(ours.Tool, theirs.Tool)
        error = ours.ToolResult.error("no")
        assert isinstance(error, theirs.ToolResult) and isinstance(error, ours.ToolResult) and error.is_error
        assert not isinstance("no", theirs.ToolResult)
        assert theirs.__spec__.loader.__class__.__name__ == "SourceFileLoader"
        """,
        NBTOOLS="off",
    )


def test_plugins_that_nanobot_cannot_use_are_named_and_those_it_could_not_are_used(
    nanobot: UnderNanobot,
) -> None:
    distribution(
        nanobot.site, "plugins",
        {"nanobot.tools": {
            "broken": "broken_plugin:Nothing", "made": "more_plugins:made", "instance": "more_plugins:instance",
            "plain": "more_plugins:Plain",
        }},
        broken_plugin="raise ImportError('no such library')",
        more_plugins="""
            import threading
            from nanobot_tools import Tool, tool

            @tool
            def instance(a: int) -> str:
                "Made by the decorator, and plain."
                return f"{a} {threading.current_thread() is threading.main_thread()}"

            @tool
            async def one(a: int) -> str:
                "One of two."
                return f"one {a}"

            def made():
                return [one]

            class Plain(Tool):
                name = "plain"
                description = "Its execute is a plain function."
                parameters = {"type": "object", "properties": {}}
                def execute(self):
                    return f"plain {threading.current_thread() is threading.main_thread()}"
        """,
    )  # fmt: skip
    nanobot.run(
        """
        import asyncio
        from types import SimpleNamespace
        import nanobot_tools
        nanobot_tools.install()
        from nanobot.agent.tools.loader import ToolLoader
        from nanobot.agent.tools.registry import ToolRegistry

        registry = ToolRegistry()
        names = ToolLoader(test_classes=[]).load(SimpleNamespace(), registry)
        assert sorted(names) == ["instance", "one", "plain"], names
        import more_plugins
        assert isinstance(registry.get("plain"), more_plugins.Plain)

        async def main():
            assert await registry.execute("one", {"a": "1"}) == "one 1"
            assert await registry.execute("plain", {}) == "plain False"
            assert await registry.execute("instance", {"a": 2}) == "2 False"

        asyncio.run(main())
        """
    )
    assert "Failed to load tool plugin: broken (ImportError: no such library)" in nanobot.log


# -- registry and arguments ------------------------------------------------------------------------------


def test_calls_are_prepared_as_by_nanobot_and_its_dict_of_tools_stays_the_truth(
    nanobot: UnderNanobot,
) -> None:
    nanobot.run(
        """
        from nanobot.agent.tools.base import Tool, tool_parameters
        from nanobot.agent.tools.registry import ToolRegistry
        import nanobot_tools

        SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}, "s": {"type": "string"}},
                  "required": ["n"]}

        @tool_parameters(SCHEMA)
        class Constant(Tool):
            name = "constant"
            description = "d"
            async def execute(self, **kwargs): ...

        class Plain(Constant):
            name = "plain"
            parameters = SCHEMA

        class Own(Plain):
            name = "own"
            def cast_params(self, params):
                return {**params, "n": 7}
            def validate_params(self, params):
                return ["own words"] if "s" in params else []

        class Steps(Plain):
            name = "steps"
            def _cast_value(self, val, schema):
                return 9

        registry = ToolRegistry()
        for tool in (Constant(), Plain(), Own(), Steps()):
            registry.register(tool)
        CALLS = [{"n": 1}, {"n": "2"}, {"n": 0}, {}, {"n": "x", "s": 5}, '{"n": 3}', None, [1], {"arguments": {"n": 4}},
                 {"arguments": '{"n": 5}'}, {"n": 1, "s": "t"}, "text", 5]

        def all_of_them():
            found = {(name, repr(call)): registry.prepare_call(name, call)
                     for name in ("constant", "plain", "own", "steps", "Con-stant", "nothing") for call in CALLS}
            return found, registry.get_definitions()

        before = all_of_them()
        nanobot_tools.install()
        registry._cached_definitions = None
        after = all_of_them()
        for call, (tool, params, error) in before[0].items():
            ours = after[0][call]
            assert (ours[0], ours[1]) == (tool, params), (call, ours, params)
            # Ours also names the parameters that are required, where nothing was to be understood.
            assert str(ours[2]).partition(" Required parameters:")[0] == str(error), (call, ours, error)
            assert type(ours[2]).__name__ == type(error).__name__, (call, ours, error)
        assert before[1] == after[1]
        assert registry.get_definitions() is registry.get_definitions()

        registry._tools["late"] = registry._tools.pop("plain")
        assert registry.prepare_call("plain", {"n": 1})[0] is None
        assert registry.prepare_call("late", {"n": "1"})[:2] == (registry._tools["late"], {"n": 1})
        replacement = Plain()
        registry.register(replacement)
        assert registry.prepare_call("plain", {"n": 1})[0] is replacement
        registry.unregister("plain")
        assert not registry.has("plain") and registry.prepare_call("plain", {})[0] is None
        """
    )


def test_one_bad_tool_does_not_spoil_the_definitions(nanobot: UnderNanobot) -> None:
    nanobot.run(
        """
        import time
        from types import SimpleNamespace
        from loguru import logger
        import nanobot_tools
        nanobot_tools.install()
        from nanobot.agent.tools.registry import ToolRegistry

        def fails():
            raise RuntimeError("cannot describe itself")

        said = []
        logger.add(said.append)
        registry = ToolRegistry()
        registry.register(SimpleNamespace(name="bad", to_schema=fails))
        registry.register(SimpleNamespace(name="good", to_schema=lambda: {"name": "good"}))
        assert registry.get_definitions() == [{"name": "good"}]
        deadline = time.monotonic() + 30
        while not any("cannot describe itself" in text and "bad" in text for text in said):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        """
    )


def test_native_search_gives_nanobots_texts_and_keeps_its_boundary(nanobot: UnderNanobot) -> None:
    program = """
        import asyncio, json, pathlib
        import nanobot_tools
        nanobot_tools.install()
        from nanobot.agent.tools.search import FindFilesTool, GrepTool

        root = pathlib.Path("work"); (root / "sub").mkdir(parents=True, exist_ok=True)
        (root / "a.txt").write_text("one\\ntwo needle\\nthree\\n")
        (root / "sub/b.py").write_text("needle = 1\\n")
        outside = pathlib.Path("outside.txt"); outside.write_text("needle\\n")

        async def main():
            said = []
            for restrict in (False, True):
                more = {"workspace": root, "allowed_dir": root if restrict else None}
                for call in ({"pattern": "needle"}, {"pattern": "needle", "path": "sub", "output_mode": "count"},
                             {"pattern": "(", "path": "."}, {"pattern": "x", "path": "nowhere"},
                             {"pattern": "needle", "path": str(outside.resolve())}):
                    said.append(await GrepTool(**more).execute(**call))
                for call in ({"query": "b"}, {"glob": "*.txt"}, {"path": "../outside.txt"}, {"path": "nowhere"}):
                    said.append(await FindFilesTool(**more).execute(**call))
            print(json.dumps(said))

        asyncio.run(main())
        """
    native = json.loads(nanobot.run(program, NBTOOLS_NATIVE_TOOLS="on"))
    assert "native-tools" in nanobot.log
    assert native == json.loads(nanobot.run(program))
    assert "needle" in native[0]
