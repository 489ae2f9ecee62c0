"""Assertions on outcomes of calls and on schemas, with messages that show what there was."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .._native import CompiledSchema, ToolOutcome
from ..base import is_tool_error_result
from ..decorator import tool as make_tool
from ..registry import ToolRegistry
from ._calls import CallOutcome, text_of

__all__ = ["assert_error", "assert_ok", "assert_schema"]

_NOTHING: Any = object()
_SHOWN = 2000


@dataclass
class _Seen:
    """An outcome of any kind, in the same terms."""

    is_error: bool
    text: str
    values: list[Any]
    kind: str | None = None
    call: str = ""
    exception: BaseException | None = None


def assert_ok(
    outcome: Any,
    *,
    contains: str | Iterable[str] = (),
    equals: Any = _NOTHING,
    matches: str | re.Pattern[str] | None = None,
) -> str:
    """Assert that a call succeeded, and what came of it.

    Args:
        outcome: What ``call_tool`` gave; or a :class:`~nanobot_tools.ToolOutcome`, what
            ``ToolRegistry.execute`` returned, or the result of ``MCPConnection.call_tool``.
        contains: Text, or several, that the result's text must contain.
        equals: What the result must be: its text; or any other value, for a result that is this value,
            structured content that is, or text that is it as JSON.
        matches: A regular expression that must be found in the text.

    Returns:
        The result's text.

    Raises:
        AssertionError: It is not so; the message shows the call with its arguments, the kind of error and
            the text.
    """
    __tracebackhide__ = True
    seen = _seen(outcome)
    if seen.is_error:
        raise AssertionError(_message("the call failed", seen)) from seen.exception
    _check_text(seen, contains, matches)
    if equals is not _NOTHING and not _equals(seen, equals):
        raise AssertionError(_message(f"the result does not equal {equals!r}", seen))
    return seen.text


def assert_error(
    outcome: Any,
    *,
    kind: str | None = None,
    contains: str | Iterable[str] = (),
    matches: str | re.Pattern[str] | None = None,
) -> str:
    """Assert that a call failed, and how.

    Args:
        outcome: As for :func:`assert_ok`.
        kind: The kind of error, such as ``"invalid_arguments"``, ``"not_found"``, ``"tool_error"``,
            ``"timeout"``, ``"remote"`` or ``"connection"``.
        contains: Text, or several, that the error's text must contain.
        matches: A regular expression that must be found in the text.

    Returns:
        The error's text, with the hint that the model gets.

    Raises:
        AssertionError: It is not so.
        TypeError: A kind is asked of what has none: a bare result.
    """
    __tracebackhide__ = True
    seen = _seen(outcome)
    if not seen.is_error:
        raise AssertionError(_message("the call succeeded", seen))
    if kind is not None:
        if seen.kind is None:
            raise TypeError(
                "a bare result does not tell the kind of its error; give the outcome of call_tool"
            )
        if seen.kind != kind:
            raise AssertionError(
                _message(f"the error is of kind {seen.kind!r}, not {kind!r}", seen)
            ) from seen.exception
    _check_text(seen, contains, matches)
    return seen.text


def assert_schema(
    tool: Any,
    *,
    arguments_valid: Iterable[Any] = (),
    arguments_invalid: Iterable[Any] = (),
) -> None:
    """Assert which arguments a tool takes, without calling it.

    Arguments are cast and validated as for a call. A schema that has to be repaired to be used at all fails
    as well. All that is wrong is named at once.

    Args:
        tool: A tool, a function (as ``@tool`` makes one of it), a tool as an MCP server lists it, or a JSON
            Schema as a dict.
        arguments_valid: Arguments that must be taken, each an object or JSON text.
        arguments_invalid: Arguments that must be refused.

    Raises:
        AssertionError: It is not so; the message shows the arguments, the schema and its complaints.
    """
    __tracebackhide__ = True
    name, schema, prepare = _checker(tool)
    wrong = []
    warning = CompiledSchema(schema).warning
    if warning is not None:
        wrong.append(f"the schema itself is faulty: {warning}")
    for arguments in arguments_valid:
        complaint = prepare(arguments)
        if complaint is not None:
            wrong.append(f"refused: {_short(arguments)}\n  the schema's complaint: {complaint}")
    wrong += [f"taken: {_short(arguments)}" for arguments in arguments_invalid if prepare(arguments) is None]
    if wrong:
        shown = json.dumps(schema, indent=2, ensure_ascii=False, default=repr)
        lines = "\n".join(wrong)
        raise AssertionError(f"the schema of {name} is not as promised\n{lines}\nschema: {shown[:_SHOWN]}")


def _checker(tool: Any) -> tuple[str, Any, Any]:
    """A name, the schema, and what gives the complaint about arguments or ``None``."""
    if isinstance(tool, Mapping):
        listed = isinstance(tool.get("name"), str) and isinstance(tool.get("inputSchema"), Mapping)
        schema = dict(tool["inputSchema"] if listed else tool)
        name = tool["name"] if listed else "the tool"
        compiled = CompiledSchema(schema)

        def complain(arguments: Any) -> str | None:
            failures = compiled.prepare(name, arguments)[1]
            return None if failures is None else _without_hint(failures)

        return name, schema, complain
    made = make_tool(tool) if inspect.isroutine(tool) else tool
    registry = ToolRegistry()
    registry.register(made)

    def prepare(arguments: Any) -> str | None:
        error = registry.prepare_call(made.name, arguments)[2]
        return None if error is None else _without_hint(str(error))

    return made.name, made.parameters, prepare


def _without_hint(text: str) -> str:
    return text.partition("\n\n[")[0]


def _seen(outcome: Any) -> _Seen:
    if isinstance(outcome, CallOutcome):
        call = f"{outcome.tool}({_short(outcome.arguments)})"
        inner = _seen(outcome.outcome)
        inner.call = call
        return inner
    if isinstance(outcome, ToolOutcome):
        text = text_of(outcome.result)
        values = [outcome.result, outcome.structured]
        return _Seen(
            outcome.is_error, text, values, outcome.error_kind, f"{outcome.name}(...)", outcome.exception
        )
    if isinstance(outcome, Mapping) and isinstance(outcome.get("content"), list):
        parts = outcome["content"]
        text = "\n".join(part["text"] if "text" in part else json.dumps(part) for part in parts)
        return _Seen(outcome.get("isError") is True, text, [outcome, outcome.get("structuredContent")])
    return _Seen(is_tool_error_result(outcome), text_of(outcome), [outcome])


def _check_text(seen: _Seen, contains: str | Iterable[str], matches: str | re.Pattern[str] | None) -> None:
    __tracebackhide__ = True
    for part in (contains,) if isinstance(contains, str) else contains:
        if part not in seen.text:
            raise AssertionError(_message(f"the text does not contain {part!r}", seen)) from seen.exception
    if matches is not None and re.search(matches, seen.text) is None:
        pattern = matches if isinstance(matches, str) else matches.pattern
        raise AssertionError(_message(f"the text does not match {pattern!r}", seen)) from seen.exception


def _equals(seen: _Seen, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return seen.text == wanted
    if any(type(value) is type(wanted) and value == wanted for value in seen.values):
        return True
    try:
        return bool(json.loads(seen.text) == wanted)
    except ValueError:
        return False


def _message(what: str, seen: _Seen) -> str:
    lines = [what]
    if seen.call:
        lines.append(f"call: {seen.call}")
    if seen.kind is not None:
        lines.append(f"kind: {seen.kind}")
    lines.append(f"text: {_cut(seen.text)}")
    return "\n".join(lines)


def _short(arguments: Any) -> str:
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(arguments)
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
