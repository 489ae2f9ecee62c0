"""Calling a function when a module has been imported, now or later.

A finder at the front of ``sys.meta_path`` knows the modules that are waited for; all other imports cost it
one look into a dict. It is there only while something is waited for.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["forget", "when_imported"]

_log = logging.getLogger("nanobot_tools.compat")

Callback = Callable[[ModuleType], object]

_waiting: dict[str, list[Callback]] = {}
_lock = threading.RLock()


def when_imported(name: str, callback: Callback) -> None:
    """Call ``callback(module)`` right after the module of that name has been executed; at once if it was.

    What the callback raises is logged and goes no further: an import never fails because of it.
    """
    with _lock:
        module = sys.modules.get(name)
        if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
            _waiting.setdefault(name, []).append(callback)
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)
            return
    _run(callback, module)


def forget(name: str, callback: Callback) -> None:
    """Wait no more."""
    with _lock:
        callbacks = _waiting.get(name, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks:
            _waiting.pop(name, None)
        _retire()


def _retire() -> None:
    if not _waiting and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def _run(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception:
        _log.exception("what was to follow the import of %s failed", module.__name__)


def _imported(module: ModuleType) -> None:
    with _lock:
        callbacks = _waiting.pop(module.__name__, [])
        _retire()
    for callback in callbacks:
        _run(callback, module)


class _Finder:
    """Finds the modules that are waited for as they would be found without it, with a loader that tells."""

    def __init__(self) -> None:
        self._busy = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting or getattr(self._busy, "name", None) == fullname:
            return None
        self._busy.name = fullname
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy.name = None
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """A module's own loader, after which the callbacks are called."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _imported(module)


_finder: Any = _Finder()
