"""The calls of a response run under nanobot: answered, told of and logged as its own executor does it, and run better."""

# ruff: noqa: E501 - programs for nanobot

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nanobot_tools.compat._executor import _shortened
from under_nanobot import UnderNanobot

# More interpreters with a nanobot, to run the same under other versions.
OTHERS = [Path(path) for path in os.environ.get("NBTOOLS_NANOBOT_PYTHONS", "").split(",") if path]


@pytest.fixture(params=[None, *OTHERS], ids=lambda path: path.parts[-3] if path else "reference")
def each(request: pytest.FixtureRequest, reference_python: Path, tmp_path: Path) -> UnderNanobot:
    """Runs programs under each nanobot that there is."""
    return UnderNanobot(request.param or reference_python, tmp_path)


# What every program begins with. `run` takes one response through nanobot's own executor or through ours.
HEAD = """
import asyncio, contextvars, inspect, os, types
from unittest.mock import AsyncMock, MagicMock
import nanobot_tools
nanobot_tools.install()
from loguru import logger
from nanobot.agent import runner
from nanobot.agent.hook import AgentHook, AgentHookContext
from nanobot.agent.tools import base
from nanobot.agent.tools.base import Tool
from nanobot.agent.tools.registry import ToolRegistry
from nanobot.providers.base import ToolCallRequest
from nanobot_tools.compat import _executor, report

assert not report().skipped and "executor" in report().active, report()
try:
    from nanobot.agent.tools import execution
except ImportError:
    execution = None  # before 0.3.5
OURS = execution.execute_tool_calls if execution else runner.AgentRunner._execute_tools
THEIRS = OURS.__wrapped__
HOOKED = execution is not None or "hook" in inspect.signature(THEIRS).parameters
STRUCTURED = hasattr(base, "ToolResult")
error = base.ToolResult.error if STRUCTURED else str
VAR = contextvars.ContextVar("VAR", default="unset")

said, unseen = [], []
logger.remove()
logger.add(lambda message: said.append((message.record["level"].name, message.record["message"])))

class Does(Tool):
    # A tool that does what it is told when it is made.
    def __init__(self, name, do, safe=True, properties=None, server=None):
        self._name, self._do, self._safe, self.returned = name, do, safe, []
        self._properties = properties or {}
        if server is not None:
            self._server_name = server
    name = property(lambda self: self._name)
    description = "Does"
    parameters = property(lambda self: {"type": "object", "properties": self._properties, "required": list(self._properties)})
    read_only = property(lambda self: self._safe)
    async def execute(self, **kwargs):
        result = self._do(**kwargs)
        result = await result if inspect.isawaitable(result) else result
        self.returned.append(result)
        return result

def registry(*tools):
    found = ToolRegistry()
    for tool in tools:
        found.register(tool)
    return found

def calls(*asked):
    pairs = [one if isinstance(one, tuple) else (one, {}) for one in asked]
    return [ToolCallRequest(id=f"call{i}", name=name, arguments=arguments) for i, (name, arguments) in enumerate(pairs)]

def raising(exc):
    def do(**kwargs):
        raise exc
    return do

def plain(value):
    text = str(value) if isinstance(value, (str, BaseException)) else repr(value)
    return type(value).__name__, getattr(value, "is_error", None), text

class Log(AgentHook):
    # Writes down what it is told, and that the right objects come with it.
    def __init__(self):
        super().__init__()
        self.log = []
    def _note(self, what, context, call, tool, params, *more):
        assert context is CONTEXT
        name = type(tool).__name__ if tool is not None else None
        self.log.append((what, call.id, call.name, name, repr(params), *map(plain, more)))
    async def before_execute_tool(self, context, call, tool, params):
        self._note("before", context, call, tool, params)
    async def after_execute_tool(self, context, call, tool, params, result):
        self._note("after", context, call, tool, params, result)
    async def on_execute_tool_error(self, context, call, tool, params, exc):
        self._note("error", context, call, tool, params, exc)
    def check(self):
        # Exactly one end for each beginning.
        begun = sorted(entry[1] for entry in self.log if entry[0] == "before")
        assert begun == sorted(entry[1] for entry in self.log if entry[0] != "before"), self.log

CONTEXT = AgentHookContext(iteration=0, messages=[])

async def run(function, tools, asked, *, concurrent=True, hook=None, fatal=False, lookups=None, violations=None, **reads):
    lookups = {} if lookups is None else lookups
    violations = {} if violations is None else violations
    hook = hook if hook is not None else Log()
    if execution:
        results, events = await function(
            tools, asked, concurrent=concurrent, external_lookup_counts=lookups,
            workspace_violation_counts=violations, hook=hook, context=CONTEXT, **reads)
        return results, events, None
    spec = types.SimpleNamespace(
        tools=tools, concurrent_tools=concurrent, fail_on_tool_error=fatal, progress_callback=None, workspace=None)
    hooks = {"hook": hook, "context": CONTEXT} if HOOKED else {}
    self = runner.AgentRunner.__new__(runner.AgentRunner)
    return await function(self, spec, asked, lookups, violations, **hooks)

async def told(function, build, responses=1, **options):
    asyncio.get_running_loop().set_exception_handler(lambda loop, found: unseen.append(found))
    said.clear()
    tools, asked = build()
    hook, lookups, violations, answers = Log(), {}, {}, []
    for _ in range(responses):
        try:
            results, events, ends = await run(
                function, tools, asked, hook=hook, lookups=lookups, violations=violations, **options)
        except Exception as exc:
            answers.append(("raised", plain(exc)))
        else:
            answers.append(([plain(result) for result in results], events, plain(ends)))
            for event in events:
                assert all(type(value) is str for value in event.values()), event
    if not any(answer[0] == "raised" for answer in answers):
        hook.check()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return {
        "answers": answers, "hooks": hook.log, "said": list(said), "lookups": lookups,
        "violations": violations, "variable": VAR.get(),
    }

def same(build, **options):
    # Both executors give the same; what that is.
    theirs = asyncio.run(told(THEIRS, build, **options))
    ours = asyncio.run(told(OURS, build, **options))
    for key in theirs:
        assert theirs[key] == ours[key], f"{key}\\n  nanobot's: {theirs[key]}\\n  ours:      {ours[key]}"
    assert not unseen, unseen
    return ours

def both_ways(build, **options):
    same(build, concurrent=False, **options)
    return same(build, concurrent=True, **options)

class Busy:
    # Calls that wait to be let go, and take their time to clean up.
    def __init__(self, cleaning=0.02):
        self.begun, self.cancelled, self.cleaned, self.cleaning = 0, 0, 0, cleaning
        self.all_begun, self.go = asyncio.Event(), asyncio.Event()
    async def __call__(self, **kwargs):
        self.begun += 1
        if self.begun == 2:
            self.all_begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            await asyncio.sleep(self.cleaning)
            self.cleaned += 1
            raise

"""


def program(body: str) -> str:
    """A program with this body."""
    return HEAD + textwrap.dedent(body)


def main(body: str) -> str:
    """A program whose ``main`` has this body; whatever asyncio complains of fails it."""
    indented = textwrap.indent(textwrap.dedent(body), "    ")
    start = "    asyncio.get_running_loop().set_exception_handler(lambda loop, found: unseen.append(found))\n"
    end = "    assert asyncio.all_tasks() == {asyncio.current_task()}\n"
    after = "asyncio.run(main())\nimport gc; gc.collect()\nassert not unseen, unseen\n"
    return f"{HEAD}\nasync def main():\n{start}{indented}\n{end}\n{after}"


def test_results_events_hooks_and_log_are_those_of_nanobot(each: UnderNanobot) -> None:
    each.run(
        program(
            """
            long = "line one\\n  two \\t" + "x y" * 400_000 + "\\n"
            outcomes = {
                "text": lambda **k: "fine", "none": lambda **k: None, "empty": lambda **k: " \\n ",
                "blocks": lambda **k: [{"type": "text", "text": "a\\nb" * 90}, {"type": "image_url", "image_url": {"url": "data:"}}],
                "number": lambda **k: 7, "dict": lambda **k: {"a": 1}, "false": lambda **k: False,
                "long": lambda **k: long, "edge": lambda **k: "e" * 120, "over": lambda **k: "e" * 121,
                "blank": lambda **k: "\\n" + "e" * 119 + " \\n z", "spaces": lambda **k: "e" + " " * 500,
                "prefix": lambda **k: "Error: said as text",
                "error": lambda **k: error("Error: it is\\nbroken: " + "y" * 300),
                "short": lambda **k: error("Error"), "megabyte": lambda **k: error("Error " + long),
                "hinted": lambda **k: error("Error: known" + _executor._HINT),
                "value": raising(ValueError("v" * 300 + "\\nend")), "bare": raising(RuntimeError()),
                "key": raising(KeyError("k")), "group": raising(ExceptionGroup("several", [ValueError("one")])),
                "timeout": raising(TimeoutError("late")), "hinted_raise": raising(ValueError("x" + _executor._HINT)),
            }
            def build():
                tools = [Does(name, do) for name, do in outcomes.items()]
                tools.append(Does("needs", lambda **k: "got", properties={"number": {"type": "integer"}}))
                needs = [("needs", {"number": "5"}), ("needs", {}), ("needs", {"number": "five" * 80}), "text", "nobody", ("nobody", {"a": 1})]
                return registry(*tools), calls(*outcomes, *needs)
            seen = both_ways(build)
            results, events, _ = seen["answers"][0]
            by_name = dict(zip(outcomes, events))
            assert by_name["text"] == {"name": "text", "status": "ok", "detail": "fine"}
            assert by_name["none"]["detail"] == by_name["empty"]["detail"] == "(empty)"
            assert by_name["over"]["detail"] == "e" * 120 + "..." and by_name["edge"]["detail"] == "e" * 120
            assert by_name["value"]["status"] == by_name["error"]["status"] == "error"
            assert by_name["value"]["detail"] == "v" * 300 + "\\nend"
            assert len(by_name["error"]["detail"]) == 120
            """
        )
    )


def test_what_a_tool_returns_is_handed_on_as_it_is(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            blocks = Does("blocks", lambda **k: [{"type": "text", "text": "a"}])
            results, _, _ = await run(OURS, registry(blocks), calls("blocks", "blocks"))
            assert [a is b for a, b in zip(results, blocks.returned, strict=True)] == [True, True]
            """
        )
    )


def test_batches_are_those_of_nanobot_and_answers_come_in_the_order_of_the_calls(each: UnderNanobot) -> None:
    each.run(
        program(
            """
            import itertools
            class Asked(ToolRegistry):
                # Which tools are looked up, and when.
                def get(self, name):
                    journal.append(("get", name))
                    return super().get(name)
                def prepare_call(self, name, params):
                    journal.append(("prepare", name))
                    return super().prepare_call(name, params)
            def build():
                journal.clear()
                async def slow(turns, **k):
                    journal.append(("begin", turns))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    journal.append(("end", turns))
                    return f"after {turns}"
                turns = {"turns": {"type": "integer"}}
                tools = Asked()
                tools.register(Does("safe", slow, properties=turns))
                tools.register(Does("unsafe", slow, safe=False, properties=turns))
                asked = [("safe", 9), ("safe", 5), ("unsafe", 3), ("unsafe", 2), ("safe", 8), ("nobody", 1), ("safe", 4), ("safe", 7), ("safe", 1)]
                return tools, calls(*((name, {"turns": turns}) for name, turns in asked))
            journal, journals = [], []
            for concurrent in (True, False):
                for function in (THEIRS, OURS):
                    seen = asyncio.run(told(function, build, concurrent=concurrent))
                    journals.append((list(journal), seen))
            assert journals[0] == journals[1], journals[:2]
            assert journals[2] == journals[3], journals[2:]
            assert journals[0] != journals[2]
            texts = [text for _, _, text in journals[0][1]["answers"][0][0]]
            assert texts[:5] == ["after 9", "after 5", "after 3", "after 2", "after 8"] and texts[6:] == ["after 4", "after 7", "after 1"]
            """
        )
    )


def test_repeated_lookups_are_blocked_as_nanobot_blocks_them(each: UnderNanobot) -> None:
    each.run(
        program(
            """
            def build():
                fetch = Does("web_fetch", lambda **k: "page", properties={"url": {"type": "string"}})
                search = Does("web_search", lambda **k: "found", safe=False, properties={"query": {"type": "string"}})
                asked = [("web_fetch", {"url": "http://x/A"}), ("web_fetch", {"url": " http://X/a "}), ("web_search", {"query": "q"})]
                return registry(fetch, search), calls(*asked)
            seen = both_ways(build, responses=3)
            assert seen["answers"][2][1][0] == {"name": "web_fetch", "status": "error", "detail": "repeated external lookup blocked"}
            assert len(seen["lookups"]) == 2 and any("Blocking repeated" in text for _, text in seen["said"])
            both_ways(build, responses=3, fatal=True)
            """
        )
    )


def test_boundaries_are_told_and_escalated_as_nanobot_does_it(each: UnderNanobot) -> None:
    each.run(
        program(
            """
            SSRF = "Error: Internal/private URL detected\\n" + "s" * 400
            OUTSIDE = "Path /etc/passwd is outside allowed directory\\n" + "o" * 400
            path = {"path": {"type": "string"}}
            def tools():
                return [
                    Does("ssrf", lambda **k: error(SSRF)), Does("ssrf_raise", raising(PermissionError(SSRF))),
                    Does("read", raising(PermissionError(OUTSIDE)), properties=path),
                    Does("write", lambda **k: error("Error: path outside working dir"), safe=False, properties=path),
                    Does("exec", lambda **k: error("Error: working_dir is outside"), safe=False, properties={"command": {"type": "string"}}),
                    Does("prefixed", raising(ValueError("path traversal detected"))),
                ]
            asked = [
                "ssrf", "ssrf_raise", ("read", {"path": "/etc/passwd"}), ("read", {"path": "/etc/../etc/passwd"}),
                ("write", {"path": "/etc/passwd"}), ("exec", {"command": "cat /etc/passwd"}), "prefixed",
            ]
            def build():
                return registry(*tools()), calls(*asked)
            class Refuses(ToolRegistry):
                def prepare_call(self, name, params):
                    return None, params, f"Error: {name}: {OUTSIDE if name == 'read' else SSRF}"
            def refused():
                return Refuses(), calls(("read", {"path": "/etc/passwd"}), ("read", {"path": "/etc/passwd"}), "other", ("read", {"path": "/etc/passwd"}))
            for made in (build, refused):
                for fatal in (False, True):
                    seen = both_ways(made, responses=2, fatal=fatal)
                    details = {event["detail"].partition(":")[0] for event in seen["answers"][0][1]}
                    assert details == {"ssrf_violation", "workspace_violation", "workspace_violation_escalated"}, details
                    assert seen["answers"][0][2] == plain(None), "a boundary ends no turn"
                    assert max(len(event["detail"]) for event in seen["answers"][0][1]) == 160
                    assert any("blocked by SSRF guard" in text for _, text in seen["said"])
                    assert any("hit workspace boundary repeatedly" in text for _, text in seen["said"])
            """
        )
    )


def test_whatever_stands_for_a_registry_is_used_as_nanobot_uses_it(each: UnderNanobot) -> None:
    each.run(
        program(
            """
            asked = calls("a", ("b", {"x": 1}), ("web_fetch", {"url": "u"}), "a")
            def mock():
                tools = MagicMock()
                tools.execute = AsyncMock(side_effect=["one", error("Error: two"), ValueError("three"), None])
                return tools, asked
            def bare():
                async def execute(name, params):
                    return f"{name} {params}"
                return types.SimpleNamespace(get_definitions=lambda: [], execute=execute), asked
            def hinting():
                async def execute(name, params):
                    return error("Error: no" + _executor._HINT)
                return types.SimpleNamespace(execute=execute), asked
            def odd():
                tools = bare()[0]
                tools.prepare_call = "not callable"
                tools.get = None
                return tools, asked
            def pair():
                tools = bare()[0]
                tools.prepare_call = lambda name, params: (None, params)
                tools.get = lambda name: None
                return tools, asked
            def refusing():
                tools = bare()[0]
                tools.prepare_call = lambda name, params: (None, params, f"Error: {name}: no: because {'r' * 300}" + _executor._HINT)
                return tools, asked
            def failing():
                tools = bare()[0]
                def prepare_call(name, params):
                    raise LookupError("the registry is broken")
                tools.prepare_call = prepare_call
                return tools, asked
            def parameters_that_fit_nothing():
                return registry(Does("a", lambda: "fine")), [ToolCallRequest(id="1", name="a", arguments=[1])]
            builds = (mock, bare, hinting, odd, pair, refusing, failing, parameters_that_fit_nothing)
            for build in builds:
                both_ways(build)
            # Where there are limits, they are asked for servers.
            os.environ.update(NBTOOLS_PER_SERVER="1", NBTOOLS_MAX_CONCURRENCY="1")
            for build in builds:
                both_ways(build)
            """
        )
    )


def test_a_fatal_error_is_the_first_in_the_order_of_the_calls_and_the_rest_still_runs(
    each: UnderNanobot,
) -> None:
    each.run(
        program(
            """
            async def late(**k):
                await asyncio.sleep(0.01)
                raise ValueError("late")
            def build():
                tools = registry(
                    Does("late", late), Does("soon", raising(KeyError("soon"))), Does("fine", lambda **k: "fine"),
                    Does("error", lambda **k: error("Error: told"), safe=False), Does("needs", lambda **k: "", properties={"a": {"type": "integer"}}),
                )
                return tools, calls(*ASKED)
            ends = {}
            for ASKED in (["fine", "late", "soon", "error"], ["soon", "late"], ["error", "fine"], ["needs", "soon"], ["nobody", "late"], ["fine"]):
                seen = both_ways(build, fatal=True)
                assert len(seen["answers"][0][0]) == len(ASKED)
                ends[ASKED[0]] = seen["answers"][0][2]
            if execution is None:
                assert ends["soon"] == plain(KeyError("soon")) and ends["error"] == plain(RuntimeError("Error: told")), ends
                assert ends["fine"] == plain(None), ends
            else:
                assert set(ends.values()) == {plain(None)}, ends
            """
        )
    )


def test_a_single_call_keeps_its_context_and_those_of_a_batch_have_their_own(each: UnderNanobot) -> None:
    each.run(
        program(
            """
            def put(**k):
                VAR.set("put")
                return "done"
            def build():
                return registry(Does("put", put), Does("alone", put, safe=False)), calls(*ASKED)
            for ASKED, batched, one_by_one in (
                (["put"], "put", "put"), (["alone"], "put", "put"), (["put", "put"], "unset", "put"), (["put", "alone"], "put", "put"),
            ):
                assert same(build, concurrent=True)["variable"] == batched, ASKED
                assert same(build, concurrent=False)["variable"] == one_by_one, ASKED
            async def where(**k):
                return str(asyncio.current_task() is TASK)
            async def main():
                global TASK
                TASK = asyncio.current_task()
                tools = registry(Does("where", where))
                assert (await run(OURS, tools, calls("where")))[0] == ["True"]
                assert (await run(OURS, tools, calls("where", "where")))[0] == ["False", "False"]
                assert (await run(OURS, tools, calls("where", "where"), concurrent=False))[0] == ["True", "True"]
            asyncio.run(main())
            """
        )
    )


def test_a_read_knows_what_the_model_still_sees_of_earlier_ones(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            from nanobot.agent.tools import file_state
            def look(**k):
                found = file_state._current_file_read.get()
                return "none" if found is None else f"{found.call_id} {sorted(found.tool_results().items())}"
            def build():
                return registry(Does("read_file", look), Does("other", look)), calls("read_file", "other", "read_file")
            messages = [
                {"role": "tool", "tool_call_id": "t1", "content": "old"}, {"role": "tool", "tool_call_id": "t1", "content": "new"},
                {"role": "tool", "tool_call_id": "t2", "content": "compacted"}, {"role": "tool", "tool_call_id": "t3", "content": [{"type": "text"}]},
                {"role": "tool", "tool_call_id": 4, "content": "no id"}, {"role": "user", "content": "hello"}, {"role": "tool", "content": "x"},
            ]
            for reads in ({}, {"model_messages": messages}, {"model_messages": messages, "compacted_tool_results": {"t2"}}):
                seen = both_ways(build, **reads)
            texts = [text for _, _, text in seen["answers"][0][0]]
            assert texts == ["call0 [('t1', 'new')]", "none", "call2 [('t1', 'new')]"], texts
            assert file_state._current_file_read.get() is None

            class Counted(list):
                def __iter__(self):
                    Counted.times += 1
                    return super().__iter__()
            for function in (THEIRS, OURS):
                Counted.times = 0
                asyncio.run(told(function, build, model_messages=Counted(messages)))
                assert Counted.times == 1, "read once for the whole response"
            """
        )
    )


def test_real_tools_of_nanobot_behave_the_same(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            import pathlib
            from nanobot.agent.tools.filesystem import ListDirTool, ReadFileTool, WriteFileTool
            def build():
                workspace = pathlib.Path("workspace").absolute()
                workspace.mkdir(exist_ok=True)
                (workspace / "b.txt").unlink(missing_ok=True)
                (workspace / "a.txt").write_text("one\\ntwo\\n")
                tools = registry(*(cls(workspace=workspace, allowed_dir=workspace) for cls in (ReadFileTool, WriteFileTool, ListDirTool)))
                return tools, calls(
                    ("read_file", {"path": "a.txt"}), ("list_dir", {"path": "."}), ("read_file", {"path": "none.txt"}),
                    ("read_file", {"path": "/etc/passwd"}), ("write_file", {"path": "b.txt", "content": "b"}), ("read_file", {}),
                )
            seen = both_ways(build)
            assert [event["status"] for event in seen["answers"][0][1]] == ["ok", "ok", "error", "error", "ok", "error"], seen
            """
        )
    )


def test_a_whole_turn_of_nanobots_runner_ends_with_the_same_messages(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            from nanobot.providers.base import LLMProvider, LLMResponse
            from nanobot.utils import helpers
            from nanobot.agent.runner import AgentRunner, AgentRunSpec
            from nanobot.utils.llm_runtime import LLMRuntime
            def no_network(name):
                raise OSError("no network in tests")
            helpers.tiktoken.get_encoding = no_network  # downloads its tables; nanobot does without
            class Scripted(LLMProvider):
                def __init__(self):
                    super().__init__(provider_name="scripted")
                    asked = calls("text", "error", "raises", ("needs", {"number": "5"}), "unsafe", "nobody")
                    self.answers = [LLMResponse(content=None, tool_calls=asked, finish_reason="tool_calls"), LLMResponse(content="done")]
                async def chat(self, *args, **kwargs):
                    return self.answers.pop(0)
                def get_default_model(self):
                    return "scripted"
            async def turn(function):
                runner.execute_tool_calls = function
                tools = registry(
                    Does("text", lambda **k: "fine"), Does("error", lambda **k: error("Error: no")), Does("raises", raising(ValueError("v"))),
                    Does("needs", lambda number: f"got {number!r}", properties={"number": {"type": "integer"}}), Does("unsafe", lambda **k: None, safe=False),
                )
                ended = await AgentRunner().run(AgentRunSpec(
                    initial_messages=[{"role": "user", "content": "go"}], tools=tools, runtime=LLMRuntime.capture(Scripted(), "scripted", context_window_tokens=100_000),
                    max_iterations=3, max_tool_result_chars=1000, concurrent_tools=True))
                return ended.messages, ended.tools_used, ended.tool_events, ended.final_content, ended.stop_reason
            assert runner.execute_tool_calls is OURS
            theirs, ours = asyncio.run(turn(THEIRS)), asyncio.run(turn(OURS))
            assert theirs == ours, (theirs, ours)
            assert ours[1] == ["text", "needs", "unsafe"] and ours[3:] == ("done", "completed"), ours
            assert [message["tool_call_id"] for message in ours[0] if message["role"] == "tool"] == [f"call{i}" for i in range(6)]
            """
        )
    )


def test_a_hook_that_raises_takes_the_other_calls_with_it_and_waits_for_them(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            class Raises(AgentHook):
                def __init__(self, moment):
                    self.moment = moment
                async def _raise(self, call, moment):
                    if call.name == "odd" and moment == self.moment:
                        await busy.all_begun.wait()
                        raise OSError(f"the hook fails {moment}")
                    if call.name == "too":
                        # Raises as well, while it is being ended.
                        try:
                            await busy.go.wait()
                        finally:
                            raise OSError("a second one")
                async def before_execute_tool(self, context, call, tool, params):
                    await self._raise(call, "before")
                async def after_execute_tool(self, context, call, tool, params, result):
                    await self._raise(call, "after")
                async def on_execute_tool_error(self, context, call, tool, params, exc):
                    await self._raise(call, "error")
            for moment in ("before", "after", "error") if HOOKED else ():
                busy = Busy()
                odd = raising(ValueError("no")) if moment == "error" else lambda **k: "fine"
                tools = registry(Does("busy", busy), Does("odd", odd), Does("too", odd))
                try:
                    await run(OURS, tools, calls("busy", "too", "odd", "busy"), hook=Raises(moment))
                except OSError as exc:
                    assert str(exc) == f"the hook fails {moment}"
                else:
                    raise AssertionError("nothing was raised")
                assert (busy.begun, busy.cancelled, busy.cleaned) == (2, 2, 2), vars(busy)
                assert asyncio.all_tasks() == {asyncio.current_task()}
            """
        )
    )


def test_cancelling_the_turn_reaches_each_call_once_and_waits_for_all(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            for asked in (["busy", "quick", "busy"], ["busy", "busy"]):
                busy = Busy()
                quick = Does("quick", lambda **k: busy.go.wait())  # obeys at once
                log = Log()
                turn = asyncio.create_task(run(OURS, registry(Does("busy", busy), quick), calls(*asked), hook=log))
                await busy.all_begun.wait()
                turn.cancel()
                (ended,) = await asyncio.gather(turn, return_exceptions=True)
                assert isinstance(ended, asyncio.CancelledError) and turn.cancelled(), ended
                assert (busy.begun, busy.cancelled, busy.cleaned) == (2, 2, 2), vars(busy)
                if HOOKED:
                    assert {entry[0] for entry in log.log} == {"before"}
            # One call alone, and a call that is cancelled by its tool and not by the turn.
            busy = Busy()
            busy.begun = 1
            turn = asyncio.create_task(run(OURS, registry(Does("busy", busy)), calls("busy")))
            await busy.all_begun.wait()
            turn.cancel()
            (ended,) = await asyncio.gather(turn, return_exceptions=True)
            assert turn.cancelled() and busy.cleaned == 1, ended
            for asked in (["ends"], ["ends", "busy", "busy"]):
                busy = Busy()
                async def ends(**k):
                    if len(asked) > 1:
                        await busy.all_begun.wait()
                    raise asyncio.CancelledError
                turn = asyncio.create_task(run(OURS, registry(Does("busy", busy), Does("ends", ends)), calls(*asked)))
                (ended,) = await asyncio.gather(turn, return_exceptions=True)
                assert isinstance(ended, asyncio.CancelledError) and busy.cleaned == busy.begun, ended
            """
        )
    )


def test_a_call_that_does_not_stop_delays_the_end_of_the_turn_but_does_not_prevent_it(
    each: UnderNanobot,
) -> None:
    each.run(
        main(
            """
            _executor.GRACE = 0.05
            begun, go, through = asyncio.Event(), asyncio.Event(), asyncio.Event()
            async def stubborn(**k):
                begun.set()
                while not go.is_set():
                    try:
                        await go.wait()
                    except asyncio.CancelledError:
                        pass
                through.set()
                raise ValueError("nobody waits for this")
            turn = asyncio.create_task(run(OURS, registry(Does("stubborn", stubborn), Does("fine", lambda **k: "")), calls("stubborn", "fine")))
            await begun.wait()
            turn.cancel()
            (ended,) = await asyncio.gather(turn, return_exceptions=True)
            go.set()
            assert turn.cancelled() and not through.is_set(), ended
            assert ("WARNING", "1 cancelled tool calls do not stop; the turn ends without them") in said, said
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0)
            assert through.is_set()
            """
        )
    )


def test_nothing_that_a_tool_raises_ends_more_than_its_call(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            class PanicException(BaseException):
                '''What a native extension raises when it panics.'''
            faults = {
                "panic": PanicException("index out of range"), "exit": SystemExit(3),
                "group": BaseExceptionGroup("several", [SystemExit(4), ValueError("five")]),
            }
            tools = registry(*(Does(name, raising(exc)) for name, exc in faults.items()), Does("fine", lambda **k: "fine"))
            for concurrent in (True, False):
                log = Log()
                results, events, ends = await run(OURS, tools, calls("fine", *faults, "fine"), concurrent=concurrent, hook=log)
                assert [event["status"] for event in events] == ["ok", "error", "error", "error", "ok"], events
                assert results[0] == results[-1] == "fine" and ends is None
                for result, event, exc in zip(results[1:], events[1:], faults.values()):
                    assert result.removesuffix(_executor._HINT) == f"Error: {type(exc).__name__}: {exc}", result
                    assert result.endswith(_executor._HINT) == (execution is not None)
                    assert event["detail"] == str(exc)
                if HOOKED:
                    log.check()
                    errors = [entry[5] for entry in log.log if entry[0] == "error"]
                    # Hooks are told of exceptions that they can keep, log and raise without harm.
                    assert [name for name, _, _ in errors] == ["InternalError"] * 3, errors
                    assert "PanicException: index out of range" in errors[0][2]
            if execution is None:
                _, _, ends = await run(OURS, tools, calls("exit"), fatal=True)
                assert isinstance(ends, Exception if HOOKED else SystemExit), ends
            # What the user asks for is no fault of a tool.
            if HOOKED:
                stops = registry(Does("stop", raising(KeyboardInterrupt())))
                try:
                    await run(OURS, stops, calls("stop"))
                except KeyboardInterrupt:
                    pass
                else:
                    raise AssertionError("the interrupt was kept")
            """
        )
    )


def test_a_group_of_cancelled_tasks_ends_a_cancelled_turn(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            if not HOOKED:
                return
            begun = asyncio.Event()
            async def grouped(**k):
                begun.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError as exc:
                    raise BaseExceptionGroup("cancelled", [exc])
            turn = asyncio.create_task(run(OURS, registry(Does("grouped", grouped)), calls("grouped")))
            await begun.wait()
            turn.cancel()
            (ended,) = await asyncio.gather(turn, return_exceptions=True)
            assert turn.cancelled(), ended
            # By itself it is a fault of the tool.
            alone = registry(Does("alone", raising(BaseExceptionGroup("x", [asyncio.CancelledError()]))))
            _, events, _ = await run(OURS, alone, calls("alone"))
            assert events[0]["status"] == "error", events
            """
        )
    )


def test_limits_hold_overall_and_for_each_server(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            def counted(which):
                async def do(number):
                    for key in ("all", which):
                        inside[key] += 1
                        peaks[key] = max(peaks[key], inside[key])
                    for _ in range(10):
                        await asyncio.sleep(0)
                    for key in ("all", which):
                        inside[key] -= 1
                    return f"{which}{number}"
                return Does(which, do, properties={"number": {"type": "integer"}}, server=None if which == "none" else which)
            asked = [(which, {"number": i}) for which in ("a", "b", "none") for i in range(5)]
            tools = registry(*map(counted, ("a", "b", "none")))
            for overall, per_server, expected in (
                ("", "", {"all": 15, "a": 5, "b": 5, "none": 5}), ("3", "", {"all": 3}),
                ("", "2", {"all": 9, "a": 2, "b": 2, "none": 5}), ("4", "1", {"all": 4, "a": 1, "b": 1}),
                ("1", "", {"all": 1}),
            ):
                os.environ.update(NBTOOLS_MAX_CONCURRENCY=overall, NBTOOLS_PER_SERVER=per_server)
                inside, peaks = dict.fromkeys(("all", "a", "b", "none"), 0), dict.fromkeys(("all", "a", "b", "none"), 0)
                results, _, _ = await run(OURS, tools, calls(*asked))
                assert results == [f"{which}{arguments['number']}" for which, arguments in asked], results
                assert peaks == {**peaks, **expected}, (overall, per_server, peaks)
            # Without a word from the user there is a limit that only the largest responses meet.
            os.environ.update(NBTOOLS_MAX_CONCURRENCY="", NBTOOLS_PER_SERVER="")
            inside, peaks = dict.fromkeys(inside, 0), dict.fromkeys(inside, 0)
            await run(OURS, tools, calls(*[("none", {"number": i}) for i in range(70)]))
            assert peaks["all"] == 64, peaks
            """
        )
    )


def test_a_call_that_waits_for_its_turn_is_cancelled_before_it_begins(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            busy, log = Busy(), Log()
            turn = asyncio.create_task(run(OURS, registry(Does("busy", busy)), calls(*["busy"] * 6), hook=log))
            await busy.all_begun.wait()
            turn.cancel()
            (ended,) = await asyncio.gather(turn, return_exceptions=True)
            assert turn.cancelled() and (busy.begun, busy.cleaned) == (2, 2), vars(busy)
            assert len(log.log) == (2 if HOOKED else 0)
            """
        ),
        NBTOOLS_MAX_CONCURRENCY="2",
    )


def test_a_limit_that_is_no_number_is_named_and_does_not_hold(nanobot: UnderNanobot) -> None:
    nanobot.run(
        """
        import nanobot_tools
        nanobot_tools.install()
        import nanobot.agent.loop, nanobot.agent.tools.search
        """,
        NBTOOLS_PER_SERVER="many",
        NBTOOLS_MAX_CONCURRENCY="0",
    )
    assert "NBTOOLS_PER_SERVER=many is no positive number; it is taken as not set" in nanobot.log
    assert "NBTOOLS_MAX_CONCURRENCY=0 is no positive number" in nanobot.log


def test_a_plain_function_of_ours_runs_in_a_thread_with_the_context_of_the_call(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            if not HOOKED:
                return
            import threading
            class Plain(nanobot_tools.Tool):
                name = "plain"
                description = "Plain"
                parameters = {"type": "object", "properties": {"fail": {"type": "boolean"}}}
                read_only = True
                def execute(self, fail=False):
                    if fail:
                        raise ValueError("it fails")
                    return f"{VAR.get()} {threading.current_thread() is threading.main_thread()}"
            VAR.set("mine")
            tools, log = registry(Plain()), Log()
            for asked in (calls("plain"), calls("plain", ("plain", {"fail": True}), "plain")):
                results, events, _ = await run(OURS, tools, asked, hook=log)
                assert results[0] == results[-1] == "mine False", results
            assert results[1].startswith("Error: ValueError: it fails"), results
            log.check()
            """
        )
    )


def test_a_runner_that_runs_calls_its_own_way_goes_on_to(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            if execution is not None:
                return
            class Own(runner.AgentRunner):
                async def _run_tool(self, spec, call, *more):
                    return f"own {call.name}", {"name": call.name, "status": "ok", "detail": ""}, None
            patched = runner.AgentRunner.__new__(runner.AgentRunner)
            patched._run_tool = types.MethodType(Own._run_tool, patched)
            spec = types.SimpleNamespace(tools=registry(), concurrent_tools=True, fail_on_tool_error=False)
            for one in (Own.__new__(Own), patched):
                results, _, _ = await one._execute_tools(spec, calls("a", "b"), {}, {})
                assert results == ["own a", "own b"], results
            """
        )
    )


def test_an_exception_that_cannot_be_told_ends_no_more_than_its_call(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            if not HOOKED:
                return
            class Mute(Exception):
                def __str__(self):
                    raise ValueError("no text")
            class MutePanic(Mute, BaseException):
                pass
            class Panic(BaseException):
                pass
            class Causes(AgentHook):
                async def on_execute_tool_error(self, context, call, tool, params, exc):
                    causes.append((str(exc), type(exc.__cause__)))
            causes = []
            tools = registry(*(Does(kind.__name__, raising(kind("boom"))) for kind in (Mute, MutePanic, Panic)), Does("fine", lambda **k: "fine"))
            results, events, _ = await run(OURS, tools, calls("fine", "Mute", "MutePanic", "Panic"), hook=Causes())
            assert results[0] == "fine" and [event["status"] for event in events] == ["ok"] + ["error"] * 3, events
            assert results[1].startswith("Error: Mute: <exception str() failed>"), results
            assert events[1]["detail"] == events[2]["detail"] == "<exception str() failed>", events
            # What is told in place of an exception leads to it.
            assert causes == [
                ("Mute: <exception str() failed>", Mute), ("MutePanic: <exception str() failed>", MutePanic), ("Panic: boom", Panic),
            ], causes
            """
        )
    )


def test_an_interrupt_is_not_kept_in_a_group_either(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            if not HOOKED:
                return
            interrupted = BaseExceptionGroup("outer", [ValueError("one"), BaseExceptionGroup("inner", [KeyboardInterrupt()])])
            for asked in (["group"], ["group", "group"]):
                try:
                    await run(OURS, registry(Does("group", raising(interrupted))), calls(*asked))
                except BaseExceptionGroup as exc:
                    assert exc is interrupted
                else:
                    raise AssertionError("the interrupt was kept")
            """
        )
    )


def test_what_tests_put_in_place_of_helpers_is_called_as_nanobot_calls_it(each: UnderNanobot) -> None:
    each.run(
        program(
            """
            home = execution or runner
            names = ["repeated_external_lookup_error", "repeated_workspace_violation_error"]
            names += [name for name in ("is_tool_error_result", "file_read_context", "_classify_violation") if hasattr(home, name)]
            outside = "outside allowed directory"
            def build():
                path = {"path": {"type": "string"}}
                tools = [Does("read_file", raising(PermissionError(outside)), properties=path), Does("fine", lambda **k: "fine")]
                return registry(*tools), calls(("read_file", {"path": "/x"}), "fine", ("read_file", {"path": "/y"}))
            async def recorded(function, concurrent):
                heard = {}
                real = {name: getattr(home, name) for name in names}
                for name, helper in real.items():
                    setattr(home, name, MagicMock(side_effect=helper))
                warned, home.logger = home.logger, MagicMock()
                try:
                    for _ in range(3):
                        answered = await run(function, *build(), concurrent=concurrent, lookups=lookups, violations=violations)
                    for name in names:
                        heard[name] = [(len(call.args), sorted(call.kwargs), repr(call.args[:2])) for call in getattr(home, name).call_args_list]
                        if name == "file_read_context":
                            heard[name] = [call.args[0] for call in getattr(home, name).call_args_list]
                    heard["logger"] = [call.args for call in home.logger.warning.call_args_list]
                finally:
                    home.logger = warned
                    for name, helper in real.items():
                        setattr(home, name, helper)
                return heard, answered
            for concurrent in (True, False):
                lookups, violations = {}, {}
                theirs = asyncio.run(recorded(THEIRS, concurrent))
                lookups, violations = {}, {}
                ours = asyncio.run(recorded(OURS, concurrent))
                assert theirs == ours, (theirs, ours)
                assert all(theirs[0].values()), theirs[0]
            """
        )
    )


def test_a_function_for_calls_that_others_replaced_is_used_and_its_exceptions_end_the_siblings(
    each: UnderNanobot,
) -> None:
    each.run(
        main(
            """
            import functools
            home, name = (execution, "_execute_tool_call") if execution else (runner.AgentRunner, "_run_tool")
            first = 0 if execution else 1
            theirs = getattr(home, name)
            async def bare(*args):
                seen.append(args[first + 1].name)
                if args[first + 1].name == "breaks":
                    await busy.all_begun.wait()
                    raise OSError("in the other's function")
                return await theirs(*args)
            wrapped = functools.wraps(theirs)(lambda *args: bare(*args))
            for other in (bare, wrapped):
                for is_before in (False, True):
                    if is_before:
                        nanobot_tools.uninstall()
                    setattr(home, name, other)
                    nanobot_tools.install()
                    assert "executor" in report().active, report()
                    function = execution.execute_tool_calls if execution else runner.AgentRunner._execute_tools
                    assert function is not THEIRS
                    seen, busy = [], Busy()
                    tools = registry(Does("fine", lambda **k: "fine"), Does("busy", busy), Does("breaks", lambda **k: ""))
                    results, _, _ = await run(function, tools, calls("fine", "fine"))
                    assert results == ["fine", "fine"] and seen == ["fine", "fine"], (results, seen)
                    try:
                        await run(function, tools, calls("busy", "breaks", "busy"))
                    except OSError as exc:
                        assert str(exc) == "in the other's function"
                    else:
                        raise AssertionError("nothing was raised")
                    assert (busy.begun, busy.cancelled, busy.cleaned) == (2, 2, 2), vars(busy)
                    assert asyncio.all_tasks() == {asyncio.current_task()}
                    setattr(home, name, theirs)
                    nanobot_tools.uninstall()
                    nanobot_tools.install()
            """
        )
    )


def test_a_setting_that_nanobot_does_not_read_need_not_be_there(each: UnderNanobot) -> None:
    each.run(
        main(
            """
            if execution is not None:
                return
            spec = types.SimpleNamespace(tools=registry(Does("fine", lambda **k: "fine")), concurrent_tools=True, progress_callback=None)
            one = runner.AgentRunner.__new__(runner.AgentRunner)
            for function in (THEIRS, OURS):
                results, _, ends = await function(one, spec, calls("fine", "fine"), {}, {})
                assert results == ["fine", "fine"] and ends is None
            """
        )
    )


def test_a_turn_that_is_given_up_with_its_loop_complains_of_nothing(each: UnderNanobot) -> None:
    each.run(
        program(
            """
            import gc, sys
            sys.unraisablehook = lambda found: unseen.append((found.exc_value, found.object))
            async def few():
                for _ in range(5):
                    await asyncio.sleep(0)
            def given_up():
                loop = asyncio.new_event_loop()
                loop.set_exception_handler(lambda loop, found: None)  # pending tasks
                busy = Busy()
                turn = loop.create_task(run(OURS, registry(Does("busy", busy.go.wait)), calls("busy", "busy")))
                loop.run_until_complete(few())
                assert not turn.done()
                loop.close()
            given_up()
            gc.collect()
            assert not unseen, unseen
            # Nor does one that is closed while the loop goes on: its calls are cancelled.
            async def closed():
                busy = Busy()
                turn = run(OURS, registry(Does("busy", busy)), calls("busy", "busy"))
                turn.send(None)
                await busy.all_begun.wait()
                turn.close()
                while len(asyncio.all_tasks()) > 1:
                    await asyncio.sleep(0)
                assert (busy.cancelled, busy.cleaned) == (2, 2), vars(busy)
            asyncio.run(closed())
            assert not unseen, unseen
            """
        )
    )


def test_an_executor_whose_helpers_are_not_as_expected_is_left_alone(nanobot: UnderNanobot) -> None:
    nanobot.run(
        """
        from nanobot.agent.tools import execution
        import nanobot_tools
        mine = execution.execute_tool_calls
        theirs = execution._classify_violation
        for change in (lambda: setattr(execution, "_classify_violation", lambda text: None), lambda: delattr(execution, "_with_retry_hint")):
            change()
            state = nanobot_tools.install()
            assert execution.execute_tool_calls is mine and "executor" not in state.active, state
            (skipped,) = [reason for target, reason in state.skipped if target.endswith("execute_tool_calls")]
            nanobot_tools.uninstall()
            print(skipped)
            execution._classify_violation = theirs
        """
    )


BLANKS = " \n\t\r\x0b\x0c\x1c\x1f\x85\xa0\u2003\u2028\u3000"


@given(
    st.lists(
        st.one_of(
            st.text(st.sampled_from(BLANKS), max_size=130),
            st.text(max_size=130),
            st.text(st.sampled_from("a\n" + BLANKS), max_size=200),
        ),
        max_size=6,
    ).map("".join),
    st.sampled_from([1, 2, 5000]),
)
@example("e" * 120, 1)
@example("e" * 119 + "\n" + "x", 1)
@example(" " * 1_000_000 + "x" + "\n" * 1_000_000, 1)
@example("line\n" * 300_000, 1)
def test_the_detail_of_any_text_is_what_is_left_of_it_in_one_line(text: str, times: int) -> None:
    text *= times
    line = text.replace("\n", " ").strip()
    assert _shortened(text) == (line[:120], len(line) > 120)
    # Blanks before it say nothing, but make it one of the texts that are not copied.
    assert _shortened("\n" * 1001 + text) == (line[:120], len(line) > 120)
