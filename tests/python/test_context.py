"""There is one current request per process, whichever module a tool reads it from."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import sys
import types

import pytest
from nanobot_tools import context
from nanobot_tools.context import (
    ContextAware,
    RequestContext,
    ToolContext,
    bind_request_context,
    current_request_context,
    current_request_session_key,
    request_context,
    reset_request_context,
)
from reference_code import PYTHON, needs_reference, run

CTX = RequestContext("cli", "chat", session_key="cli:chat")


@pytest.fixture
def nanobot(monkeypatch):
    """A stand-in for nanobot's module, as it looks once it is loaded."""

    def load() -> contextvars.ContextVar:
        module = types.ModuleType("nanobot.agent.tools.context")
        module._CURRENT_REQUEST_CONTEXT = contextvars.ContextVar("nanobot_tool_request_context", default=None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return module._CURRENT_REQUEST_CONTEXT

    return load


def test_a_bound_request_is_current_until_it_is_reset():
    assert current_request_context() is None
    assert current_request_session_key() is None
    token = bind_request_context(CTX)
    assert current_request_context() is CTX
    assert current_request_session_key() == "cli:chat"
    reset_request_context(token)
    assert current_request_context() is None


def test_requests_nest_and_end_also_after_an_error():
    inner = RequestContext("cli", "inner")
    with pytest.raises(KeyError), request_context(CTX) as bound:  # noqa: PT012
        assert bound is CTX
        with request_context(inner):
            assert current_request_context() is inner
        assert current_request_context() is CTX
        raise KeyError
    assert current_request_context() is None


async def test_tasks_see_their_own_request():
    async def look(name: str) -> str:
        with request_context(RequestContext("c", name)):
            await asyncio.sleep(0)
            found = current_request_context()
            assert found is not None
            return found.chat_id

    assert await asyncio.gather(look("a"), look("b")) == ["a", "b"]


def test_a_request_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CTX.channel = "x"


def test_nanobots_variable_is_used_where_nanobot_is_loaded(nanobot):
    theirs = nanobot()
    with request_context(CTX):
        assert theirs.get() is CTX
    token = theirs.set(CTX)
    assert current_request_context() is CTX
    assert current_request_session_key() == "cli:chat"
    theirs.reset(token)
    assert current_request_context() is None


def test_a_request_bound_before_nanobot_is_loaded_stays_visible(nanobot):
    with request_context(CTX):
        theirs = nanobot()
        assert current_request_context() is CTX
        other = RequestContext("c", "theirs")
        token = theirs.set(other)
        assert current_request_context() is other
        theirs.reset(token)
    assert current_request_context() is None


def test_nanobot_half_loaded_is_no_trouble(monkeypatch):
    name = "nanobot.agent.tools.context"
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    with request_context(CTX):
        assert current_request_context() is CTX


@needs_reference
@pytest.mark.parametrize("first", ["nanobot.agent.tools.context", "nanobot_tools.context"])
def test_both_modules_see_one_value_in_either_order_of_import(first):
    # Our module is loaded from its file: the native half is not there in the reference's interpreter.
    code = f"""
import importlib.util, sys
def ours():
    spec = importlib.util.spec_from_file_location("nanobot_tools.context", {context.__file__!r})
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
def theirs():
    import nanobot.agent.tools.context as module
    return module
if {first!r}.startswith("nanobot."):
    b = theirs(); a = ours()
else:
    a = ours(); b = theirs()
result = []
with a.request_context(a.RequestContext("c", "1", session_key="k1")):
    result.append([a.current_request_context().chat_id, b.current_request_context().chat_id])
    result.append([a.current_request_session_key(), b.current_request_session_key()])
with b.request_context(b.RequestContext("c", "2")):
    result.append([a.current_request_context().chat_id, b.current_request_context().chat_id])
result.append([a.current_request_context(), b.current_request_context()])
"""
    assert PYTHON.exists()
    assert run(code) == [["1", "1"], ["k1", "k1"], ["2", "2"], [None, None]]


def test_a_tool_that_takes_the_context_is_known_by_its_method():
    class Takes:
        def set_context(self, ctx: RequestContext) -> None: ...

    assert isinstance(Takes(), ContextAware)
    assert not isinstance(object(), ContextAware)


def test_a_tool_context_needs_nothing():
    made = ToolContext()
    assert (made.config, made.workspace, made.timezone) == (None, ".", "UTC")
    assert ToolContext({"a": 1}, "/w").config == {"a": 1}
