"""Replacing functions of nanobot's in place, and putting them back.

A target says where a function is, what it has to look like, and what makes its replacement. One that is not
there, or looks otherwise, is left alone and reported: whatever the drop-in cannot improve goes on as it was.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

__all__ = ["Graft", "Status", "Target", "parameters"]

_log = logging.getLogger("nanobot_tools.compat")

Status = Literal["waiting", "active", "absent", "skipped", "off"]
Factory = Callable[[Any, ModuleType], Any]


def parameters(function: Any) -> str:
    """The parameters of a function without annotations, such as ``"self, name, *, scope='core'"``."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    return text[1:-1]


@dataclass(frozen=True)
class Target:
    """Something of nanobot's that is replaced.

    Attributes:
        part: The part of the drop-in that it belongs to.
        module: The module that it is in.
        name: Its name there: ``"function"`` or ``"Class.method"``.
        expected: What its parameters may be (see :func:`parameters`); empty for what is no function.
        factory: Makes the replacement from what was there and the module.
        is_async: Whether it has to be a coroutine function.
    """

    part: str
    module: str
    name: str
    expected: tuple[str, ...]
    factory: Factory
    is_async: bool = False

    @property
    def path(self) -> str:
        """Module and name."""
        return f"{self.module}.{self.name}"


class Graft:
    """One target in one process: waiting for its module, replaced, or left alone for a reason."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.status: Status = "waiting"
        self.reason: str | None = None
        self._undo: list[Callable[[], None]] = []

    def leave(self, status: Status, reason: str) -> None:
        """Leave the target alone."""
        self.status, self.reason = status, reason

    def apply(self, module: ModuleType) -> None:
        """Replace the target if it looks as expected. Raises nothing."""
        try:
            self._apply(module)
        except Exception as exc:
            self.undo()
            self.leave("skipped", f"{type(exc).__name__}: {exc}")
            _log.debug("%s was left alone", self.target.path, exc_info=True)

    def _apply(self, module: ModuleType) -> None:
        target = self.target
        owner_name, _, attribute = target.name.rpartition(".")
        owner: Any = getattr(module, owner_name, None) if owner_name else module
        raw = None if owner is None else vars(owner).get(attribute)
        if raw is None:
            self.leave("absent", "this nanobot has none")
            return
        is_static = isinstance(raw, staticmethod)
        found = raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
        why_not = _unexpected(target, raw, found)
        if why_not is not None:
            self.leave("skipped", why_not)
            return
        new = target.factory(found, module)
        self._set(owner, attribute, raw, staticmethod(new) if is_static else new)
        if owner is module:
            for other, name in _bound_elsewhere(found, module):
                self._set(other, name, found, new)
        self.status, self.reason = "active", None

    def _set(self, owner: Any, name: str, old: Any, new: Any) -> None:
        setattr(owner, name, new)

        def undo() -> None:
            if vars(owner).get(name) is new:
                setattr(owner, name, old)
            else:
                _log.warning("%s.%s was replaced by others and is left as it is", owner.__name__, name)

        self._undo.append(undo)

    def undo(self) -> None:
        """Put back what was there."""
        while self._undo:
            self._undo.pop()()
        if self.status == "active":
            self.status = "waiting"


def _unexpected(target: Target, raw: Any, found: Any) -> str | None:
    """What about a target is not as expected, or ``None``."""
    if not target.expected:
        return None
    if not inspect.isfunction(found):
        return f"it is a {type(raw).__name__}, where a function is expected"
    if inspect.iscoroutinefunction(found) != target.is_async:
        return "it is no coroutine function" if target.is_async else "it is a coroutine function"
    # What somebody else has put around the function has its parameters, but is not to be lost.
    if hasattr(found, "__wrapped__"):
        return "somebody else has replaced it"
    looks = parameters(found)
    if looks not in target.expected:
        return f"its parameters are ({looks}), where ({' or '.join(target.expected)}) is expected"
    return None


def _bound_elsewhere(function: Any, home: ModuleType) -> Iterator[tuple[ModuleType, str]]:
    """Where in nanobot's modules a function was imported by name."""
    for name, module in list(sys.modules.items()):
        if module is home or not (name == "nanobot" or name.startswith("nanobot.")):
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is function:
                yield module, attribute
