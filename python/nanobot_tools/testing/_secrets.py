"""What of an entry is secret, and how it is kept out of a recording."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

__all__ = ["MASK", "Masker", "secrets_of", "shown_entry"]

MASK = "***"

_SECRET_NAME = re.compile(
    r"auth|cookie|credential|key|pass(?!age)|pat$|private|pwd|secret|session|signature|token", re.IGNORECASE
)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
#: Words in front of a token, which are none.
_SCHEMES = frozenset(("bearer", "basic", "digest", "token", "apikey"))
#: Characters from which on a value is masked wherever it stands, whatever it is called.
_LONG = 8
#: Characters below which nothing is masked in texts: it would hit what has nothing to do with it.
_SHORT = 4


class Masker:
    """Masks secrets in objects of JSON, also where they are written as in URLs or in ``Basic`` headers."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = set()
        for value in values:
            forms |= {value, quote(value, safe=""), quote_plus(value), unquote(value)}
            forms.add(base64.b64encode(value.encode()).decode())
        forms.discard("")
        # The longest first: a secret may be part of another.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, value: Any) -> Any:
        """A copy of the value with every secret masked, in keys as well."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._pattern.sub(MASK, value)
        if isinstance(value, Mapping):
            return {self(key): self(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(item) for item in value]
        return value


def secrets_of(entry: Mapping[str, Any]) -> set[str]:
    """The values of an entry that belong into no recording.

    These are the values of ``env`` and ``headers``, user, password and query values of the URL, and arguments
    that are given for an option with the name of a secret; each also with its ``${VAR}`` filled in.
    """
    found: set[str] = set()

    def add(name: str, value: Any) -> None:
        if not isinstance(value, str):
            return
        filled = _VARIABLE.sub(lambda match: os.environ.get(match[1], ""), value)
        least = _SHORT if _SECRET_NAME.search(name) else _LONG
        parts = {filled, *filled.split()}
        found.update(part for part in parts if len(part) >= least and part.lower() not in _SCHEMES)
        scheme, _, coded = filled.partition(" ")
        if scheme.lower() == "basic":
            for part in _decoded(coded).split(":", 1):
                add("password", part)

    for field in ("env", "headers"):
        for name, value in _mapping(entry.get(field)).items():
            add(str(name), value)
    url = entry.get("url")
    if isinstance(url, str):
        parts = urlsplit(url)
        for value in (parts.username, parts.password):
            add("password", unquote(value or ""))
        if parts.username and parts.password:
            add("password", f"{unquote(parts.username)}:{unquote(parts.password)}")
        for _, value in parse_qsl(parts.query):
            add("token", value)
    for name, value in _options(entry.get("args")):
        if _SECRET_NAME.search(name):
            add(name, value)
    return found


def shown_entry(entry: Mapping[str, Any], mask: Masker) -> dict[str, Any]:
    """Where a recording comes from, for people: the entry without its secrets and this machine's paths."""
    shown: dict[str, Any] = {}
    command, url = entry.get("command"), entry.get("url")
    if isinstance(command, str) and command:
        shown["command"] = Path(command).name
        shown["args"] = _args(entry.get("args"))
    if isinstance(url, str) and url:
        shown["url"] = _url(url)
    for field in ("env", "headers"):
        names = _mapping(entry.get(field))
        if names:
            shown[field] = dict.fromkeys(map(str, names), MASK)
    masked: dict[str, Any] = mask(shown)
    return masked


def _args(args: Any) -> list[str]:
    shown: list[str] = []
    hidden = False
    for item in args if isinstance(args, (list, tuple)) else ():
        text = str(item)
        name, equals, _ = text.partition("=")
        if hidden and not text.startswith("-"):
            text = MASK
        elif equals and name.startswith("-") and _SECRET_NAME.search(name):
            text = f"{name}={MASK}"
        elif Path(text).is_absolute():
            text = f".../{Path(text).name}"
        hidden = not equals and name.startswith("-") and bool(_SECRET_NAME.search(name))
        shown.append(text)
    return shown


def _options(args: Any) -> list[tuple[str, str]]:
    """Options with their values, written as one argument or as two."""
    items = [str(item) for item in args] if isinstance(args, (list, tuple)) else []
    pairs = [item.partition("=")[::2] for item in items if item.startswith("-") and "=" in item]
    pairs += [(a, b) for a, b in pairwise(items) if a.startswith("-") and "=" not in a]
    return [(name, value) for name, value in pairs if not value.startswith("-")]


def _url(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{MASK}@{host}" if "@" in parts.netloc else host
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    query = "&".join(f"{quote_plus(name)}={MASK}" for name in names)
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return ""
