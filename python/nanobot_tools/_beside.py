"""What holds wherever this package and nanobot are loaded in one process, whether or not the drop-in is on.

Tools written on either of the two ``Tool`` classes are tools to both. Nothing of nanobot's is changed for it:
its class learns of ours the way abstract classes do (``ABC.register``), and error results are made so that
nanobot takes them for errors. (The request's context is shared as well; see ``context``.)
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ._imports import when_imported

__all__ = ["BASE", "meet", "result_class", "speaks_in_texts"]

#: The module with nanobot's base classes.
BASE = "nanobot.agent.tools.base"


def meet(ours: Any) -> None:
    """Make ``ours`` a tool class to nanobot as soon as nanobot is there."""

    def register(base: ModuleType) -> None:
        theirs = base.Tool
        if not issubclass(ours, theirs):
            theirs.register(ours)

    when_imported(BASE, register)


_made: tuple[Any, Any] | None = None


def result_class(ours: Any) -> Any:
    """The class of results: ``ours``, or where nanobot has such a class, one that is both."""
    global _made
    theirs = getattr(sys.modules.get(BASE), "ToolResult", None)
    if not isinstance(theirs, type) or issubclass(ours, theirs):
        return ours
    if _made is None or _made[0] is not theirs:
        # What it is made by stays that of ours; it is one class more in the list of bases.
        body = {"__slots__": (), "__module__": ours.__module__, "__doc__": ours.__doc__}
        _made = theirs, type(ours.__name__, (ours, theirs), body)
    return _made[1]


def speaks_in_texts() -> bool:
    """Whether there is a nanobot that knows errors by their text alone (before 0.3.0)."""
    base = sys.modules.get(BASE)
    # While it is being imported it has none of its classes yet.
    return base is not None and hasattr(base, "Tool") and not hasattr(base, "ToolResult")
