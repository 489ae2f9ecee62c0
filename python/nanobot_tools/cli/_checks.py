"""What the doctor looks at in a server of the configuration, step by step.

The steps are ``entry``, ``command`` or ``address``, ``start``, ``handshake``, ``lists``, ``schemas``,
``names`` and ``health``. The first two start nothing. A step that fails ends those of its server.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ._app import near
from ._config import Configuration, environment, expanded, without_prefix
from ._output import seconds

if TYPE_CHECKING:
    from ..mcp import MCPConnection
    from ._session import Session

__all__ = ["Check", "after_start", "before_start"]

PROFILES = ("openai", "anthropic", "gemini", "moonshot")

#: Programs that start servers, and what has to be installed for them.
_INSTALL = {
    "npx": "install Node.js, which brings npx",
    "node": "install Node.js",
    "uvx": "install uv, which brings uvx",
    "uv": "install uv",
    "docker": "install Docker",
    "deno": "install Deno",
    "bunx": "install Bun, which brings bunx",
    "bun": "install Bun",
}

#: What a failure says, and what can be done about it.
_ADVICE = (
    (r"could not be started", "see that the command of the entry can be run"),
    (r"\bhas exited\b", "run the command in a shell: it must stay, and speak MCP over its stdin and stdout"),
    (
        r"no handshake and lists within",
        "it is slow (raise connectTimeout), or what the command starts is no MCP server",
    ),
    (r"Blocked ", "if the server is meant to be there, say so with allowPrivate in its entry"),
    (r"is unreachable", "see that the server runs, and that the address is right"),
    (r"\b40[13]\b|authori[sz]", "put a token that is valid into the entry: headers.Authorization"),
    (r"\b404\b", "see that the path of the address is right, and that type says which transport it is"),
    (r"still connecting", "give it more time with --timeout"),
)


@dataclass(frozen=True)
class Check:
    """What one step found.

    Attributes:
        server: The server's name.
        step: The step's name.
        ok: Whether all is well.
        detail: What was found.
        advice: What to do about it, if it is not well.
    """

    server: str
    step: str
    ok: bool
    detail: str
    advice: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON shows it."""
        return asdict(self)

    def __str__(self) -> str:
        advice = f": {self.advice}" if self.advice else ""
        return f"MCP server {self.server}: {self.step}: {self.detail}{advice}"


def before_start(config: Configuration) -> Iterator[Check]:
    """What can be seen without starting anything."""
    for name, entry in config.servers.items():
        fault = config.faults.get(name)
        if fault is not None:
            unset = re.search(r"the environment variable (\S+) is not set", fault)
            advice = (
                f"set {unset[1]} where nanobot-tools is started"
                if unset
                else "mend the entry; nanobot_tools/config.schema.json says what it may hold"
            )
            yield Check(name, "entry", False, fault, advice)
            continue
        odd = [without_prefix(name, text) for text in config.warnings if text.startswith(_prefix(name))]
        for text in odd:
            yield Check(name, "entry", False, text, _about_field(text))
        if name in config.disabled:
            yield Check(name, "entry", True, "disabled")
            continue
        if not odd:
            yield Check(name, "entry", True, "well-formed")
        yield from _target(name, entry)


async def after_start(session: Session) -> list[Check]:
    """What can be seen of the servers that were started, or could not be."""
    found: list[Check] = []
    lists: dict[str, list[dict[str, Any]]] = {}
    failures = session.failures
    for name in session.config.servers:
        if name in session.config.faults or name in session.config.disabled:
            continue
        connection = session.connections.get(name)
        if connection is None:
            found.append(_failed(session, name, failures.get(name, "it is not there")))
        else:
            found.extend(await _examine(session, name, connection, lists))
    found.extend(_clashes(lists))
    order = list(session.config.servers)
    return sorted(found, key=lambda check: order.index(check.server))


def _prefix(name: str) -> str:
    return f"MCP server '{name}': "


def _about_field(warning: str) -> str:
    named = re.search(r"unknown field '(\w+)'", warning)
    if named is None:
        return "mend the entry"
    from ._schema import fields

    return f"take it out{near(named[1], fields())}"


def _target(name: str, entry: Mapping[str, Any]) -> Iterator[Check]:
    """Whether the program of an entry is there, or its address can be one."""
    command = entry.get("command")
    kind = entry.get("type") or ("stdio" if command else "http")
    if kind != "stdio":
        address = urlsplit(expanded(str(entry.get("url"))))
        if address.scheme in ("http", "https") and address.hostname:
            yield Check(name, "address", True, f"{address.scheme}://{address.hostname}")
        else:
            yield Check(name, "address", False, "it is no address", "give a whole one: https://host/path")
        return
    cwd = entry.get("cwd")
    if cwd and not Path(expanded(cwd)).is_dir():
        yield Check(name, "command", False, f"{cwd} is no folder", "make it, or mend cwd")
        return
    program = expanded(str(command))
    where = shutil.which(program, path=environment(entry).get("PATH"))
    if where is None and cwd and os.sep in program:
        where = shutil.which(str(Path(expanded(cwd), program)))
    if where is not None:
        yield Check(name, "command", True, where)
        return
    advice = _INSTALL.get(Path(program).name, "install it, put it on the PATH, or give its whole path")
    yield Check(name, "command", False, f"{program} is not found", advice)


def _failed(session: Session, name: str, failure: str) -> Check:
    """Why a server is not there: it could not be started, or it did not answer as it should."""
    started = "could not be started" not in failure and "unreachable" not in failure
    advice = next((text for pattern, text in _ADVICE if re.search(pattern, failure)), None)
    lines = session.provider.stderr(name).strip().splitlines()[-3:]
    said = "" if not lines or "stderr:" in failure else f" (it wrote: {' / '.join(lines)})"
    return Check(name, "handshake" if started else "start", False, failure + said, advice)


async def _examine(
    session: Session, name: str, connection: MCPConnection, lists: dict[str, list[dict[str, Any]]]
) -> list[Check]:
    """What a server that is there offers."""
    from ..errors import NanobotToolsError

    found = []
    start = f"in {seconds(session.start_times.get(name))}"
    if name in session.last_failures:
        start += f", after it had failed: {session.last_failures[name]}"
    found.append(Check(name, "start", True, start))
    about = " ".join(connection.server_info or ())
    found.append(Check(name, "handshake", True, f"protocol {connection.protocol_version}, {about}"))
    told = {without_prefix(name, text) for text in session.config.warnings}
    for warning in connection.warnings:
        text = without_prefix(name, warning)
        if text not in told:
            found.append(Check(name, "handshake", False, text, "tell the author of the server"))
    try:
        listed = await connection.list_tools() if "tools" in connection.capabilities else []
        # What enabledTools and disabledTools keep back is no model's concern.
        offered = {getattr(tool, "_original_name", None) for tool in connection.tools}
        lists[name] = [tool for tool in listed if tool.get("name") in offered]
        hidden = len(listed) - len(lists[name])
        counts = [f"{len(listed)} tools{f' ({hidden} not offered)' if hidden else ''}"]
        for kind in ("resources", "prompts"):
            if kind in connection.capabilities:
                items = await getattr(connection, f"list_{kind}")()
                counts.append(f"{len(items)} {kind}")
        found.append(Check(name, "lists", True, ", ".join(counts)))
    except NanobotToolsError as exc:
        advice = "tell the author of the server: it says that it has such a list"
        found.append(Check(name, "lists", False, without_prefix(name, exc), advice))
        return found
    found.extend(_schemas(name, lists[name]))
    asked = time.perf_counter()
    try:
        await connection.ping()
    except NanobotToolsError as exc:
        advice = "the server does not answer while it is idle; see what it writes to stderr"
        found.append(Check(name, "health", False, without_prefix(name, exc), advice))
    else:
        found.append(Check(name, "health", True, f"answers in {seconds(time.perf_counter() - asked)}"))
    return found


def _schemas(name: str, tools: Iterable[Mapping[str, Any]]) -> Iterator[Check]:
    """Whether the schemas can be used, and for which providers they have to be changed."""
    from .._native import CompiledSchema
    from ..schema import normalize_schema

    as_they_are = dict.fromkeys(PROFILES, 0)
    count = faults = 0
    for tool in tools:
        count += 1
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict):
            warning: str | None = "there is none"
        else:
            warning = CompiledSchema(schema).warning
            for profile in PROFILES:
                as_they_are[profile] += normalize_schema(schema, profile) == schema
        if warning is not None:
            faults += 1
            advice = "tell the author of the server; the tool can be called, its arguments are checked less"
            yield Check(name, "schemas", False, f"tool {tool.get('name')}: {warning}", advice)
    if count and not faults:
        changed = [
            f"{profile} {'as they are' if as_is == count else f'{count - as_is} adapted'}"
            for profile, as_is in as_they_are.items()
        ]
        yield Check(name, "schemas", True, ", ".join(changed))


def _clashes(lists: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[Check]:
    """Names that two tools would have."""
    from .._native import mcp_name

    owners: dict[str, str] = {}
    for server, tools in lists.items():
        clashes = []
        seen: set[str] = set()
        for tool in tools:
            raw = str(tool.get("name"))
            name = mcp_name("tool", server, raw)
            if raw in seen:
                clashes.append((f"it lists the tool {raw} twice", "tell the author of the server"))
            elif name in owners:
                text = f"{name} is also a tool of {owners[name]}"
                clashes.append((text, "rename one of the servers, or leave one tool out with disabledTools"))
            seen.add(raw)
            owners.setdefault(name, server)
        for text, advice in clashes:
            yield Check(server, "names", False, text, advice)
        if seen and not clashes:
            yield Check(server, "names", True, "unique")
