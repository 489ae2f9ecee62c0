"""Cassettes: what an MCP server answered, recorded once and played back without it.

The client connects to a server on loopback in the same process. While recording it passes every request on
to the real server; later it answers from the recording. Either way a test sees answers without secrets, so
that it sees the same both times.
"""

from __future__ import annotations

import difflib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import MCPError, NanobotToolsError
from ..mcp import connect_mcp_server
from ..mcp._entry import plain_entry
from ._secrets import Masker, secrets_of, shown_entry
from ._wire import HttpEndpoint, Request, agreed, unknown_method
from .echo_server import INTERNAL_ERROR, RpcError

if TYPE_CHECKING:
    from ..mcp import MCPCallbacks, MCPConnection
    from ..registry import ToolRegistry

__all__ = ["CassetteError", "Mode", "Tape", "cassette"]

#: What is done: play back, and record what was never recorded; record anew; compare with the real server.
Mode = Literal["play", "record", "check"]

_FORMAT = 1
_AGAIN = "run pytest with --nbtools-record to record it anew"
#: Fields of an entry that are about reaching the real server; all others are for its client.
_TRANSPORT = frozenset((
    "type", "command", "args", "env", "cwd", "url", "headers", "auth", "protocol", "lazy", "idleTimeout",
    "idle_timeout", "allowPrivate", "allow_private", "ssrfWhitelist", "ssrf_whitelist",
))  # fmt: skip


class CassetteError(AssertionError):
    """A test asked for what is not on its cassette, or the server is not what it was when it was recorded."""


@dataclass
class Tape:
    """What is recorded of a server.

    Attributes:
        path: The file.
        entry: Where it was recorded, for people.
        about: What the server said of itself in ``initialize``.
        answers: The answers to each request, in the order in which it was made.
    """

    path: Path
    entry: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Tape:
        """Read a recording.

        Raises:
            CassetteError: The file is none, or one of another version.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise ValueError(f"its format is {content['format']!r}, not {_FORMAT}")
            tape = cls(path, content["entry"], content["server"])
            for item in content["requests"]:
                answers = item["answers"]
                if not answers or not all("result" in answer or "error" in answer for answer in answers):
                    raise ValueError(f"{item['method']} has no answer")
                tape.answers[_key(item["method"], item["params"])] = answers
        except (OSError, ValueError, KeyError, TypeError) as exc:
            text = f"{type(exc).__name__}: {exc}"
            raise CassetteError(f"{path} is no cassette that can be played ({text}); {_AGAIN}") from exc
        return tape

    def save(self) -> None:
        """Write the file as a whole, or leave it as it was."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        requests = [{**_request(key), "answers": answers} for key, answers in self.answers.items()]
        content = {"format": _FORMAT, "entry": self.entry, "server": self.about, "requests": requests}
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(name, 0o644)
            os.replace(name, self.path)
        except BaseException:
            os.unlink(name)
            raise

    def join(self, other: Tape) -> None:
        """Add what another recording of the same server holds."""
        self.entry, self.about = other.entry, other.about
        for key, answers in other.answers.items():
            if len(answers) >= len(self.answers.get(key, ())):
                self.answers[key] = answers

    def differences(self, now: Tape, unstable: frozenset[str] = frozenset()) -> list[str]:
        """What is answered differently now, as lines for people."""
        found = _diff("the server's account of itself", self.about, now.about)
        for key, answers in now.answers.items():
            request = _request(key)
            if request["method"] == "tools/call" and request["params"].get("name") in unstable:
                continue
            for then, answer in zip(self.answers.get(key, ()), answers, strict=False):
                found += _diff(_shown(key), then, answer)
        return found


@dataclass
class Deck:
    """The cassettes of one run of the tests: what was recorded in it, and what there is to tell."""

    mode: Mode = "play"
    recorded: dict[Path, Tape] = field(default_factory=dict)


@asynccontextmanager
async def cassette(
    path: Path,
    entry: Any,
    deck: Deck,
    *,
    name: str,
    registry: ToolRegistry | None = None,
    callbacks: MCPCallbacks | None = None,
    mask: Iterable[str] = (),
    unstable: Iterable[str] = (),
    tell: Callable[[str], object] = lambda text: None,
) -> AsyncIterator[MCPConnection]:
    """Connect to a recorded server; see the fixture ``mcp_cassette``."""
    config = plain_entry(name, entry)
    masker = Masker(secrets_of(config) | set(mask))
    # What was recorded in this run is added to by the next test with the same cassette.
    known = deck.mode != "record" and path not in deck.recorded and _there(path)
    if deck.mode == "check" and not known:
        raise CassetteError(f"there is no {path} to check; {_AGAIN}")
    options = {key: value for key, value in config.items() if key not in _TRANSPORT}
    if known and deck.mode == "play":
        player = _Player(Tape.load(path), masker)
        async with _connected(player.serve, name, options, registry, callbacks) as connection:
            try:
                yield connection
            except BaseException as exc:
                _note(exc, player.complaint())
                raise
        if complaint := player.complaint():
            raise CassetteError(complaint)
        return
    before = Tape.load(path) if known else None
    async with await connect_mcp_server(name, config, callbacks=callbacks) as upstream:
        recorder = _Recorder(Tape(path, shown_entry(config, masker)), upstream, masker)
        async with _connected(recorder.serve, name, options, registry, callbacks) as connection:
            yield connection
    # Only what a test that passed has seen is kept, or compared.
    if recorder.lost:
        raise CassetteError(f"the server could not be recorded: {recorder.lost[0]}")
    if before is not None:
        _compare(before, recorder.tape, frozenset(unstable))
    else:
        _keep(recorder.tape, deck, tell)


@asynccontextmanager
async def _connected(
    serve: Any,
    name: str,
    options: Mapping[str, Any],
    registry: ToolRegistry | None,
    callbacks: MCPCallbacks | None,
) -> AsyncIterator[MCPConnection]:
    endpoint = HttpEndpoint(serve)
    await endpoint.open()
    try:
        # Said, so that no other version is asked for first.
        entry = {**options, **endpoint.entry, "protocol": "2025-11-25"}
        connection = await connect_mcp_server(name, entry, registry=registry, callbacks=callbacks)
        async with connection:
            yield connection
    finally:
        await endpoint.aclose()


class _Player:
    """Answers from a recording."""

    def __init__(self, tape: Tape, mask: Masker) -> None:
        self._tape = tape
        self._mask = mask
        self._played: dict[str, int] = {}
        self._missing: list[str] = []

    async def serve(self, request: Request) -> dict[str, Any]:
        method, params = request.method, request.params
        if method == "initialize":
            return {**self._tape.about, "protocolVersion": agreed(params)}
        if method == "ping":
            return {}
        key = _key(method, self._mask(params))
        answers = self._tape.answers.get(key, [])
        number = self._played.get(key, 0)
        self._played[key] = number + 1
        if method != "tools/call":
            number = min(number, len(answers) - 1)  # Nothing happens by asking once more.
        if not answers or number >= len(answers):
            raise RpcError(INTERNAL_ERROR, self._miss(key, len(answers)))
        answer = answers[number]
        if "error" in answer:
            error = answer["error"]
            raise RpcError(error["code"], error["message"], error.get("data"))
        result: dict[str, Any] = answer["result"]
        return result

    def complaint(self) -> str:
        """What was asked for in vain; empty if nothing was."""
        if not self._missing:
            return ""
        return "\n".join([*self._missing, f"If the test was changed, {_AGAIN}."])

    def _miss(self, key: str, recorded: int) -> str:
        text = f"not on the cassette {self._tape.path}: {_shown(key)}"
        if recorded:
            text += f" (it is there {recorded} times, and was asked for once more)"
        else:
            method = _request(key)["method"]
            others = [_shown(other) for other in self._tape.answers if _request(other)["method"] == method]
            nearest = difflib.get_close_matches(_shown(key), others, 3, 0.3)
            text += f" (recorded: {'; '.join(nearest)})" if nearest else f" (no {method} is recorded)"
        self._missing.append(text)
        return text


class _Recorder:
    """Passes requests on, and notes the answers."""

    def __init__(self, tape: Tape, upstream: MCPConnection, mask: Masker) -> None:
        self.tape = tape
        self.lost: list[str] = []
        self._upstream = upstream
        self._mask = mask
        tape.about = mask(_about(upstream))

    async def serve(self, request: Request) -> dict[str, Any]:
        method, params = request.method, request.params
        if method == "initialize":
            return {**self.tape.about, "protocolVersion": agreed(params)}
        if method == "ping":
            return {}
        if method == "server/discover":
            raise unknown_method(method)
        asked = {key: value for key, value in params.items() if key != "_meta"}
        key = _key(method, self._mask(asked))
        # The place is kept now: answers may come in another order than they were asked for.
        answer: dict[str, Any] = {}
        self.tape.answers.setdefault(key, []).append(answer)
        try:
            if method == "tools/call":
                result = await self._upstream.call_tool(asked.get("name", ""), asked.get("arguments"))
            else:
                result = await self._upstream.request(method, asked)
        except MCPError as exc:
            error = {"code": exc.rpc_code, "message": exc.message, "data": exc.data}
            answer["error"] = self._mask({k: v for k, v in error.items() if v is not None})
            fault = answer["error"]
            raise RpcError(fault["code"], fault["message"], fault.get("data")) from exc
        except BaseException as exc:
            answers = self.tape.answers[key]
            answers[:] = [one for one in answers if one is not answer]
            if not answers:
                del self.tape.answers[key]
            if isinstance(exc, NanobotToolsError):
                self.lost.append(f"{_shown(key)}: {self._mask(str(exc))}")
            elif method == "tools/call":
                self.lost.append(f"{_shown(key)}: there was no answer before it was given up")
            raise
        answer["result"] = self._mask(result)
        masked: dict[str, Any] = answer["result"]
        return masked


def _there(path: Path) -> bool:
    return path.exists()


def _about(upstream: MCPConnection) -> dict[str, Any]:
    name, version = upstream.server_info or ("unknown", "unknown")
    about: dict[str, Any] = {
        "protocolVersion": upstream.protocol_version,
        "capabilities": upstream.capabilities,
        "serverInfo": {"name": name, "version": version},
    }
    if upstream.instructions is not None:
        about["instructions"] = upstream.instructions
    return about


def _keep(tape: Tape, deck: Deck, tell: Callable[[str], object]) -> None:
    """Write a recording, together with what other tests of this run recorded on the same cassette."""
    path = tape.path
    so_far = deck.recorded.get(path)
    changes: list[str] = []
    if so_far is None:
        if path.exists():
            try:
                changes = Tape.load(path).differences(tape)
            except CassetteError:
                changes = []  # It is replaced because it cannot be read.
        deck.recorded[path] = tape
    else:
        so_far.join(tape)
        tape = so_far
    tape.save()
    count = sum(map(len, tape.answers.values()))
    tell(f"recorded {path} ({count} answers)")
    if changes:
        tell("\n".join([f"the server has changed since {path} was recorded:", *changes]))


def _compare(before: Tape, now: Tape, unstable: frozenset[str]) -> None:
    __tracebackhide__ = True
    lines = before.differences(now, unstable)
    if lines:
        lines.insert(0, f"the server has changed since {before.path} was recorded (-: then, +: now):")
    lines += [
        f"not on the cassette {before.path}: {_shown(key)}"
        for key, answers in now.answers.items()
        if len(answers) > len(before.answers.get(key, ()))
        and (key not in before.answers or _request(key)["method"] == "tools/call")
    ]
    if lines:
        raise CassetteError("\n".join([*lines, f"If that is as it should be, {_AGAIN}."]))


def _note(exc: BaseException, complaint: str) -> None:
    if complaint and complaint.splitlines()[0] not in str(exc):
        exc.add_note(complaint)


def _key(method: str, params: Mapping[str, Any]) -> str:
    asked = {key: value for key, value in params.items() if key != "_meta"}
    if method == "tools/call" and not asked.get("arguments"):
        asked.pop("arguments", None)  # None at all, or an empty object: the same to a server.
    return json.dumps([method, asked], sort_keys=True, ensure_ascii=False)


def _request(key: str) -> dict[str, Any]:
    method, params = json.loads(key)
    return {"method": method, "params": params}


def _shown(key: str) -> str:
    method, params = json.loads(key)
    if method == "tools/call":
        return (
            f"tools/call {params.get('name')} {json.dumps(params.get('arguments', {}), ensure_ascii=False)}"
        )
    return f"{method} {json.dumps(params, ensure_ascii=False)}" if params else str(method)


def _diff(name: str, before: Any, now: Any) -> list[str]:
    if before == now:
        return []
    then, today = (
        json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True).splitlines()
        for value in (before, now)
    )
    lines = list(difflib.unified_diff(then, today, lineterm="", n=2))[2:]
    return ["", f"{name}:", *(line for line in lines if not line.startswith("@@"))]
