"""What servers ask of the host, and who answers."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_servers import asked, asking, eventually, everything, needs_node, say
from nanobot_tools import MCPCallbacks, MCPConnection, MCPError, connect_mcp_server

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
        "note": {"type": "string", "maxLength": 5},
    },
    "required": ["name"],
}
DEFAULTS = {"name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": True}


@asynccontextmanager
async def connected(**callbacks: Any) -> AsyncIterator[MCPConnection]:
    async with await connect_mcp_server("s", asking(), callbacks=MCPCallbacks(**callbacks)) as connection:
        yield connection


async def announced(connection: MCPConnection) -> Mapping[str, Any]:
    """The capabilities that the client announced."""
    seen = json.loads(await say(connection, "seen"))
    [params] = [message["params"] for message in seen if message.get("method") == "initialize"]
    capabilities: dict[str, Any] = params["capabilities"]
    return capabilities


async def test_what_has_no_callback_is_not_announced_and_declined() -> None:
    """With an error at once, never with silence; a ping and an unknown request are answered as well."""
    async with connected() as connection:
        assert await announced(connection) == {}
        for method in ("sampling/createMessage", "elicitation/create", "roots/list", "no/such/thing"):
            answer = await asked(connection, method)
            assert answer["error"]["code"] == -32601
        assert await asked(connection, "ping") == {"result": {}}


async def test_sampling_is_answered_by_a_plain_or_a_coroutine_function() -> None:
    """A plain one runs beside the loop, with the context of whoever connected."""
    who = contextvars.ContextVar("who", default="nobody")
    who.set("somebody")
    threads: list[threading.Thread] = []

    def answer(server: str, params: dict[str, Any]) -> dict[str, Any]:
        threads.append(threading.current_thread())
        text = f"{server} {who.get()} {params['messages']}"
        return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}

    async def answer_later(server: str, params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return answer(server, params)

    class Answerer:
        async def __call__(self, server: str, params: dict[str, Any]) -> dict[str, Any]:
            return answer(server, params)

    callbacks: list[Callable[..., Any]] = [answer, answer_later, lambda *a: answer_later(*a), Answerer()]
    for callback in callbacks:
        async with connected(sampling=callback) as connection:
            assert set(await announced(connection)) == {"sampling"}
            got = await asked(connection, "sampling/createMessage", {"messages": [1], "maxTokens": 5})
            assert got["result"]["content"]["text"] == "s somebody [1]"
            assert got["result"]["model"] == "m"
    main = threading.main_thread()
    assert [thread is main for thread in threads] == [False, True, True, True]


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("accept", {"action": "accept", "content": DEFAULTS}),
        ("decline", {"action": "decline"}),
        ({"action": "cancel", "content": {"name": "x"}}, {"action": "cancel"}),
        (
            {"action": "accept", "content": {"name": "Ann", "age": "41", "score": None, "verified": "false"}},
            {"action": "accept", "content": {**DEFAULTS, "name": "Ann", "age": 41, "verified": False}},
        ),
    ],
)
async def test_an_accepted_form_is_complete_and_of_the_right_types(answer: Any, result: Any) -> None:
    """The schema's defaults fill what was left out; nothing is sent with a refusal."""
    async with connected(elicitation=lambda *_: answer) as connection:
        assert await announced(connection) == {"elicitation": {"form": {}, "url": {}}}
        got = await asked(connection, "elicitation/create", {"message": "?", "requestedSchema": FORM})
        assert got == {"result": result}


async def test_what_does_not_fit_the_form_is_an_error_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    """The server is told that something is wrong, and so is the log."""
    answers: list[Any] = [
        {"action": "accept", "content": {"note": "too long for it"}},
        {"action": "accept", "content": [1]},
        {"action": "perhaps"},
        None,
        "yes",
    ]
    async with connected(elicitation=lambda *_: answers.pop(0)) as connection:
        for text in ("does not fit the form", "must be a dict", "'perhaps'", "NoneType", "'yes'"):
            got = await asked(connection, "elicitation/create", {"message": "?", "requestedSchema": FORM})
            assert got["error"]["code"] == -32603
            assert text in got["error"]["message"]
    assert len(caplog.records) == 5


async def test_an_address_to_open_is_passed_on_and_has_no_content() -> None:
    """URL mode: the callback sees mode and address."""
    seen: list[Any] = []

    def open_it(server: str, params: dict[str, Any]) -> dict[str, Any]:
        seen.append(params)
        return {"action": "accept", "content": {"token": "secret"}}

    async with connected(elicitation=open_it) as connection:
        params = {"mode": "url", "message": "sign in", "url": "https://example.org/x", "elicitationId": "1"}
        assert await asked(connection, "elicitation/create", params) == {"result": {"action": "accept"}}
        assert seen == [params]
        got = await asked(connection, "elicitation/create", {**params, "mode": "telepathy"})
        assert got["error"]["code"] == -32602


async def test_roots_are_given_as_paths_addresses_or_by_a_callback(tmp_path: Path) -> None:
    """Paths become absolute file addresses with the folder's name."""
    folder = tmp_path / "my folder"
    roots = [folder, str(tmp_path), "file:///a%20b/c/", {"uri": "file:///x", "name": "X"}]
    wanted = [
        {"uri": folder.as_uri(), "name": "my folder"},
        {"uri": tmp_path.as_uri(), "name": tmp_path.name},
        {"uri": "file:///a%20b/c/", "name": "c"},
        {"uri": "file:///x", "name": "X"},
    ]
    assert wanted[0]["uri"].endswith("/my%20folder")

    async def of(server: str) -> Any:
        return roots

    for given in (roots, lambda server: roots, of):
        async with connected(roots=given) as connection:
            assert await announced(connection) == {"roots": {"listChanged": True}}
            assert await asked(connection, "roots/list") == {"result": {"roots": wanted}}
            await connection.roots_changed()
            seen = json.loads(await say(connection, "seen"))
            assert "notifications/roots/list_changed" in [message.get("method") for message in seen]
    for wrong in (lambda _: "/folder", lambda _: [1], lambda _: None, lambda _: [{"name": "no uri"}]):
        async with connected(roots=wrong) as connection:
            assert (await asked(connection, "roots/list"))["error"]["code"] == -32603


async def test_models_of_the_sdk_are_as_good_as_dicts() -> None:
    """Anything that has pydantic's `model_dump`."""

    class Model:
        def __init__(self, **fields: Any) -> None:
            self.fields = fields

        def model_dump(self, *, mode: str, by_alias: bool, exclude_none: bool) -> dict[str, Any]:
            assert (mode, by_alias, exclude_none) == ("json", True, True)
            return self.fields

    async with connected(
        sampling=lambda *_: Model(role="assistant", content=[], model="m"),
        elicitation=lambda *_: Model(action="accept"),
        roots=lambda _: [Model(uri="file:///x")],
    ) as connection:
        sampled = await asked(connection, "sampling/createMessage")
        assert sampled == {"result": {"role": "assistant", "content": [], "model": "m"}}
        entered = await asked(connection, "elicitation/create", {"message": "?", "requestedSchema": FORM})
        assert entered["result"]["content"] == DEFAULTS
        assert await asked(connection, "roots/list") == {"result": {"roots": [{"uri": "file:///x"}]}}


async def test_many_requests_at_once_are_all_answered() -> None:
    """Each with its own answer, from threads and from the loop."""

    def answer(server: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"role": "assistant", "content": [], "model": params["model"]}

    async def answer_later(server: str, params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.001)
        return answer(server, params)

    for callback in (answer, answer_later):
        async with connected(sampling=callback) as connection:
            models = [f"m{n}" for n in range(100)]
            asking = (asked(connection, "sampling/createMessage", {"model": model}) for model in models)
            answers = await asyncio.gather(*asking)
            assert [got["result"]["model"] for got in answers] == models


async def test_an_exception_in_a_callback_is_the_servers_error_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With its text; an `MCPError` is passed on with its code."""
    errors = [ValueError("no model here"), KeyError(), StopIteration(), MCPError(-1, "the user said no")]

    def fail(*_: Any) -> Any:
        raise errors.pop(0)

    async with connected(sampling=fail) as connection:
        got = [(await asked(connection, "sampling/createMessage"))["error"] for _ in range(4)]
    assert got[0] == {"code": -32603, "message": "no model here"}
    assert got[1] == {"code": -32603, "message": "KeyError"}
    assert "StopIteration" in got[2]["message"]
    assert got[3] == {"code": -1, "message": "the user said no"}
    assert [record.exc_info is not None for record in caplog.records] == [True, True, True]


async def test_a_result_without_a_json_form_is_an_error() -> None:
    """The server waits for no answer that cannot be sent."""
    results: list[Any] = [{"x": object()}, {"x": float("nan")}, "text"]
    async with connected(sampling=lambda *_: results.pop(0)) as connection:
        for _ in range(3):
            assert (await asked(connection, "sampling/createMessage"))["error"]["code"] == -32603


async def test_a_request_that_the_server_takes_back_cancels_the_callback() -> None:
    """The coroutine is cancelled, and nothing is answered."""
    cancelled = asyncio.Event()

    async def think(*_: Any) -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with connected(sampling=think) as connection:
        text = await say(connection, "ask", method="sampling/createMessage", takeBackAfter=0.1)
        assert text == "taken back"
        await asyncio.wait_for(cancelled.wait(), 30)
        seen = json.loads(await say(connection, "seen"))
        assert all("method" in message for message in seen)


async def test_closing_cancels_the_callbacks_and_may_be_done_by_one() -> None:
    """No task of a callback outlives its connection."""
    state: list[str] = []
    connection: MCPConnection

    async def think(server: str, params: dict[str, Any]) -> Any:
        if params.get("close"):
            await connection.aclose()
            state.append("closed")
            return {}
        try:
            state.append("thinks")
            await asyncio.sleep(60)
        finally:
            state.append("stopped")

    before = asyncio.all_tasks()
    async with connected(sampling=think) as connection:
        asks = asyncio.create_task(say(connection, "ask", method="sampling/createMessage"))
        await eventually(lambda: state)
        closes = {"method": "sampling/createMessage", "params": {"close": True}}
        closing = asyncio.create_task(say(connection, "ask", **closes))
        await eventually(lambda: "closed" in state)
        results = await asyncio.gather(asks, closing, return_exceptions=True)
    assert all(isinstance(result, ConnectionError) for result in results)
    assert state == ["thinks", "stopped", "closed"]
    await eventually(lambda: asyncio.all_tasks() == before)


async def test_the_time_that_the_user_takes_does_not_count_against_the_call() -> None:
    """A call with a short limit outlives a long think."""

    async def think(*_: Any) -> Any:
        await asyncio.sleep(1.5)
        return "accept"

    callbacks = MCPCallbacks(elicitation=think)
    async with await connect_mcp_server("s", asking(toolTimeout=1), callbacks=callbacks) as connection:
        got = await asked(connection, "elicitation/create", {"message": "?", "requestedSchema": FORM})
        assert got["result"]["action"] == "accept"


def test_a_loop_that_has_ended_answers_nothing_and_the_server_is_told() -> None:
    """The connection lives on another loop, and the request is declined at once."""
    callbacks = MCPCallbacks(sampling=lambda *_: {}, list_changed=lambda *_: None)
    connection = asyncio.run(connect_mcp_server("s", asking(), callbacks=callbacks))

    async def later() -> dict[str, Any]:
        await say(connection, "offer", tools={"red": ""})
        answer = await asked(connection, "sampling/createMessage")
        await connection.aclose()
        return answer

    assert asyncio.run(asyncio.wait_for(later(), 60))["error"]["code"] == -32603


@needs_node
async def test_the_official_server_asks_for_samples_forms_addresses_and_roots(tmp_path: Path) -> None:
    """server-everything over stdio, which has tools for these only if the client announces them."""
    forms: list[dict[str, Any]] = []

    async def sample(server: str, params: dict[str, Any]) -> dict[str, Any]:
        text = f"a sample of {params['maxTokens']} tokens"
        return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}

    def fill(server: str, params: dict[str, Any]) -> dict[str, Any] | str:
        forms.append(params)
        return {"action": "accept", "content": {"name": "Ann"}} if params.get("mode") != "url" else "decline"

    callbacks = MCPCallbacks(sampling=sample, elicitation=fill, roots=[tmp_path])
    async with await connect_mcp_server("ev", everything(), callbacks=callbacks) as connection:
        # It registers them when the handshake is over, and says so.
        await eventually(lambda: len([w for w in connection.tools if hasattr(w, "_original_name")]) == 17)
        sampled = await say(connection, "trigger-sampling-request", prompt="p", maxTokens=7)
        assert "a sample of 7 tokens" in sampled
        result = await connection.call_tool("trigger-elicitation-request")
        assert "Ann" in json.dumps(result)
        assert "properties" in forms[0]["requestedSchema"]
        result = await connection.call_tool("trigger-url-elicitation", {"url": "https://example.org/"})
        assert forms[1]["mode"] == "url"
        assert "decline" in json.dumps(result)
        assert tmp_path.as_uri() in json.dumps(await connection.call_tool("get-roots-list"))
