"""Secrets in server entries, moved into variables of the environment."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["move", "place_of"]

_SECRET = re.compile(
    r"token|secret|passw|credential|private|api_?key|access_?key|auth|cookie|\bkey\b|_key\b", re.IGNORECASE
)
_NOT = re.compile(
    r"auth(or|_url|_type|_method)s?\b|public|(max|min|num)_?tokens|tokenizer|_(file|path|url)$", re.IGNORECASE
)
#: An address with a password in it.
_LOGIN = re.compile(r"^[A-Za-z][\w+.-]*://[^/\s:@]*:[^/\s@]+@")
_SCHEME = re.compile(r"^(Bearer|Basic|Token)\s+(?=\S)", re.IGNORECASE)
_FLAG = re.compile(r"^(--?[A-Za-z][\w-]*)(?:=(.*))?$", re.DOTALL)


def move(servers: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Replace what looks like a secret by ``${VAR}``, in the entries themselves.

    It is looked for by name in ``env`` and ``headers``, in arguments (``--token x``, ``--api-key=x``) and in
    addresses (``?key=x``, ``https://user:password@host``). What refers to a variable already stays.

    Returns:
        Variable -> secret.
    """
    taken = _Variables()
    for server, entry in servers.items():
        _move_named(entry.get("env"), "", server, taken)
        _move_named(entry.get("headers"), f"{server}_", server, taken)
        args = entry.get("args")
        if isinstance(args, list):
            entry["args"] = _arguments(args, server, taken)
        if isinstance(entry.get("url"), str):
            entry["url"] = _address(entry["url"], server, taken)
    return taken.values


class _Variables:
    """The variables that secrets were moved to."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def take(self, server: str, name: str, value: str) -> str:
        """The reference to a variable that has the value; the same one for equal names and values."""
        plain, owner = _upper(name), _upper(server)
        variable, number = plain, 2
        if not plain.startswith(f"{owner}_") and self.values.get(variable, value) != value:
            plain = variable = f"{owner}_{plain}"
        while self.values.get(variable, value) != value:
            variable, number = f"{plain}_{number}", number + 1
        self.values[variable] = value
        return f"${{{variable}}}"


def _upper(name: str) -> str:
    """A name for a variable."""
    found = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper() or "SECRET"
    return f"_{found}" if found[0].isdigit() else found


def place_of(entry: dict[str, Any]) -> str:
    """How a server is reached, for people, without what may be secret."""
    if entry.get("command"):
        count = len(entry.get("args") or [])
        return f"{entry['command']} ({count} arguments)" if count else str(entry["command"])
    parts = urlsplit(str(entry.get("url")))
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _is_secret(name: str, value: Any) -> bool:
    return (
        isinstance(value, str)
        and bool(value)
        and "${" not in value
        and bool(_SECRET.search(name.replace("-", "_")))
        and not _NOT.search(name)
    )


def _move_named(values: Any, prefix: str, server: str, taken: _Variables) -> None:
    """Move what is secret in variables or headers; their own variables get this before their names."""
    if not isinstance(values, dict):
        return
    for name, value in values.items():
        if not isinstance(value, str) or "${" in value:
            continue
        if _is_secret(name, value):
            # "Bearer" and its like are no secret, and are kept where they can be read.
            scheme = _SCHEME.match(value)
            before = scheme[0] if scheme else ""
            values[name] = before + taken.take(server, f"{prefix}{name}", value[len(before) :])
        elif _LOGIN.match(value):
            values[name] = _address(value, server, taken)


def _arguments(args: list[Any], server: str, taken: _Variables) -> list[Any]:
    found: list[Any] = []
    flag = ""
    for argument in args:
        match = _FLAG.match(argument) if isinstance(argument, str) else None
        if match is not None and match[2] is not None:
            found.append(f"{match[1]}={_argument(match[1], match[2], server, taken)}")
        elif match is not None:
            found.append(argument)
        else:
            found.append(_argument(flag, argument, server, taken))
        flag = match[1] if match is not None and match[2] is None else ""
    return found


def _argument(flag: str, value: Any, server: str, taken: _Variables) -> Any:
    """The value of an argument after its flag, if it has one."""
    name = flag.lstrip("-")
    if name and _is_secret(name, value):
        return taken.take(server, f"{server}_{name}", value)
    if isinstance(value, str) and "${" not in value and _LOGIN.match(value):
        return _address(value, server, taken)
    return value


def _address(url: str, server: str, taken: _Variables) -> str:
    """An address without the password and the secret parameters in it."""
    parts = urlsplit(url)
    netloc = parts.netloc
    user, at, host = netloc.rpartition("@")
    name, colon, password = user.partition(":")
    if at and colon and password and "${" not in password:
        netloc = f"{name}:{taken.take(server, f'{server}_password', password)}@{host}"
    pairs = []
    for pair in parts.query.split("&"):
        key, equals, value = pair.partition("=")
        if equals and _is_secret(unquote(key), value):
            # The variable holds what stands in the address, so it stays as it is written there.
            pair = f"{key}={taken.take(server, f'{server}_{unquote(key)}', value)}"
        pairs.append(pair)
    return urlunsplit((parts.scheme, netloc, parts.path, "&".join(pairs), parts.fragment))
