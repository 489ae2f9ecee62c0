"""Finding tools: the modules of a package, and plugins of other distributions.

The rules and log texts are those of nanobot-ai 0.3.5 (``nanobot.agent.tools.loader``). A plugin is an entry
point in the group ``nanobot.tools``; it may name a tool class, of ours or of nanobot's, a tool object, a list
of those, or a function without arguments that returns any of them. Whatever else an entry point names is not
called and not complained about, since hosts use the group to be activated as well. A plugin that cannot be
used is refused with a log line that names it and the reason, and costs only itself.

Log records go to ``nanobot_tools.loader``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._legacy import legacy
from .base import Tool, _compiled

if TYPE_CHECKING:
    from .context import ToolContext
    from .registry import ToolRegistry

__all__ = ["Examined", "ToolLoader", "examine"]

_log = logging.getLogger("nanobot_tools.loader")

_GROUP = "nanobot.tools"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PARTS = ("name", "description", "parameters", "execute")

#: Modules of nanobot's tool package that hold no tools; skipped in every package, as there.
_SKIP_MODULES = frozenset(
    {
        "base",
        "schema",
        "registry",
        "context",
        "loader",
        "config",
        "file_state",
        "sandbox",
        "mcp",
        "__init__",
        "runtime_control",
    }
)

# A plugin that calls sys.exit() at import, or in create(), must not end the host.
_FAULTS = (Exception, SystemExit)


def entry_points(*, group: str) -> Iterable[Any]:
    """The installed entry points of a group. Imported when it is needed: that takes 15 ms."""
    from importlib.metadata import entry_points as installed

    return installed(group=group)


class ToolLoader:
    """Finds tool classes and registers tools made from them.

    Args:
        package: The package whose modules are searched (default: ``nanobot_tools.tools``).
        test_classes: Use these classes instead of searching a package. Plugins are loaded all the same.
    """

    def __init__(self, package: Any = None, *, test_classes: list[type[Tool]] | None = None) -> None:
        self._package = package
        self._test_classes = test_classes
        self._discovered: list[type[Tool]] | None = None
        self._plugins: dict[str, Any] | None = None

    def discover(self) -> list[type[Tool]]:
        """The concrete tool classes of the package, each once, sorted by class name.

        Modules and names that begin with ``_`` are skipped, and so are classes whose
        ``_plugin_discoverable`` is false. A module that fails to import is logged. The search is made once.
        """
        if self._test_classes is not None:
            return list(self._test_classes)
        if self._discovered is None:
            found: dict[int, type[Tool]] = {}
            for module in self._modules():
                for name in dir(module):
                    value: Any = getattr(module, name, None)
                    if not name.startswith("_") and _is_ready(value):
                        found.setdefault(id(value), value)
            self._discovered = sorted(found.values(), key=lambda cls: cls.__name__)
        return list(self._discovered)

    def _modules(self) -> Iterator[ModuleType]:
        if self._package is None:
            self._package = importlib.import_module("nanobot_tools.tools")
        for _, name, _ in pkgutil.iter_modules(self._package.__path__):
            if name.startswith("_") or name in _SKIP_MODULES:
                continue
            try:
                yield importlib.import_module(f".{name}", self._package.__name__)
            except _FAULTS as exc:
                _log.error("Failed to import tool module: %s (%s)", name, _reason(exc), exc_info=True)

    def _discover_plugins(self) -> dict[str, Any]:
        """What the entry points name, by entry-point name; looked up once."""
        if self._plugins is not None:
            return self._plugins
        try:
            found = list(self._entry_points(_GROUP))
        except Exception as exc:
            _log.error("Failed to read the entry points of %s (%s)", _GROUP, _reason(exc), exc_info=True)
            return {}
        plugins: dict[str, Any] = {}
        for one in examine(found):
            if one.level is None:
                plugins[one.name] = one.value
            elif one.level:
                _log.log(one.level, "%s", one.message, exc_info=one.failure)
        self._plugins = plugins
        return plugins

    def _entry_points(self, group: str) -> Iterable[Any]:
        return entry_points(group=group)

    def _wrap(self, tool: Any) -> Any:
        """A plugin's tool as it is registered."""
        return legacy(tool)

    def load(self, ctx: ToolContext, registry: ToolRegistry, *, scope: str = "core") -> list[str]:
        """Make and register the tools that are meant for ``scope`` and enabled in ``ctx``.

        Args:
            ctx: What tools are made from; given to each class's ``enabled`` and ``create``.
            registry: Where they are registered.
            scope: Only tools that list it in ``_scopes`` are loaded.

        Returns:
            The names that were registered, in that order: the package's own tools, then plugins. A plugin
            does not replace one of the package's own; any other taken name is replaced, with a warning.
        """
        registered: list[str] = []
        for cls in self.discover():
            self._load_one(cls, cls.__name__, ctx, registry, scope, registered, None)
        builtin = frozenset(registered)
        for entry, value in self._discover_plugins().items():
            try:
                items = list(_flatten(value))
            except _FAULTS as exc:
                _log.error("Failed to load tool plugin: %s (%s)", entry, _reason(exc), exc_info=True)
                continue
            if not items:
                _log.debug("Tool plugin %s skipped: it gives no tools", entry)
            for item in items:
                self._load_one(item, _label(item), ctx, registry, scope, registered, builtin, entry)
        return registered

    def _load_one(
        self,
        source: Any,
        label: str,
        ctx: ToolContext,
        registry: ToolRegistry,
        scope: str,
        registered: list[str],
        builtin: frozenset[str] | None,
        entry: str = "",
    ) -> None:
        """Register one tool. ``builtin`` are the names that a plugin must leave alone; None for no plugin."""
        try:
            if scope not in getattr(source, "_scopes", {"core"}):
                return
            enabled = getattr(source, "enabled", None)
            if callable(enabled) and not enabled(ctx):
                return
            tool = _make(source, ctx)
            if builtin is not None:
                fault = _fault(tool)
                if fault is not None:
                    _log.error("Plugin %s (entry point %s) refused: %s", label, entry, fault)
                    return
                tool = self._wrap(tool)
            name = tool.name
            if registry.has(name):
                if builtin is not None and name in builtin:
                    _log.warning("Plugin %s skipped: conflicts with built-in tool %s", label, name)
                    return
                _log.warning("Tool name collision: %s from %s overwrites existing", name, label)
            registry.register(tool)
            registered.append(name)
        except _FAULTS as exc:
            _log.error("Failed to register tool: %s (%s)", label, _reason(exc), exc_info=True)


@dataclass(frozen=True)
class Examined:
    """An entry point and what it is good for.

    Attributes:
        name: Its name.
        distribution: The distribution that it belongs to, if known.
        names: What it names, as ``module:attribute``.
        value: The object behind it; ``None`` if it was not loaded.
        level: ``None`` if it may give tools; otherwise how loud it is that it does not (a level of
            :mod:`logging`, 0 for what nobody needs to know).
        message: What is said of one that gives none.
        failure: Why it could not be loaded.
    """

    name: str
    distribution: str
    names: str
    value: Any = None
    level: int | None = None
    message: str = ""
    failure: BaseException | None = None


def examine(entries: Iterable[Any]) -> Iterator[Examined]:
    """Load entry points and say of each what it is good for; of those with one name only the first is loaded.

    The entry point by which nanobot loads this package gives no tools and is not loaded.
    """
    entries = list(entries)
    chosen = _first_of_each_name(entries)
    for entry in entries:
        distribution, names = _distribution(entry), str(getattr(entry, "value", ""))
        described: dict[str, Any] = {"name": entry.name, "distribution": distribution, "names": names}
        first = chosen[entry.name]
        if names.startswith("nanobot_tools.compat"):
            yield Examined(**described, level=0, message="it is how nanobot finds this package")
        elif first is not entry:
            if not _same(first, entry):
                unknown = "an unknown distribution"
                message = (
                    f"Tool plugin {entry.name} of {distribution or unknown} refused: "
                    f"{_distribution(first) or unknown} has an entry point of that name already"
                )
                yield Examined(**described, level=logging.WARNING, message=message)
        else:
            yield _loaded(entry, described)


def _loaded(entry: Any, described: dict[str, Any]) -> Examined:
    try:
        value = entry.load()
    except _FAULTS as exc:
        message = f"Failed to load tool plugin: {entry.name} ({_reason(exc)})"
        return Examined(**described, level=logging.ERROR, message=message, failure=exc)
    why_not, level = _unusable(value)
    if why_not is None:
        return Examined(**described, value=value)
    message = f"Tool plugin {entry.name} skipped: {why_not}"
    return Examined(**described, value=value, level=level, message=message)


def _reason(exc: BaseException) -> str:
    text = str(exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def _label(source: Any) -> str:
    return source.__name__ if isinstance(source, type) else type(source).__name__


def _bases() -> tuple[type, ...]:
    """The base classes of tools: ours, and nanobot's where it is loaded."""
    theirs = getattr(sys.modules.get("nanobot.agent.tools.base"), "Tool", None)
    return (Tool, theirs) if isinstance(theirs, type) else (Tool,)


def _is_ready(value: Any) -> bool:
    """Whether ``value`` is a tool class that the loader may make a tool from."""
    bases = _bases()
    return (
        isinstance(value, type)
        and issubclass(value, bases)
        and value not in bases
        and not getattr(value, "__abstractmethods__", None)
        and bool(getattr(value, "_plugin_discoverable", True))
    )


def _has_parts(value: Any) -> bool:
    # Not hasattr on an object: it would run properties, which may raise.
    cls = value if isinstance(value, type) else type(value)
    own = getattr(value, "__dict__", {})
    return all(hasattr(cls, part) or part in own for part in _PARTS) or isinstance(value, _bases())


def _missing(value: Any) -> list[str]:
    cls = value if isinstance(value, type) else type(value)
    return [part for part in _PARTS if not hasattr(cls, part)]


def _unusable(value: Any) -> tuple[str | None, int]:
    """Why an entry point's object gives no tool, and how loud that is; None if it may give one."""
    if isinstance(value, type):
        if not (issubclass(value, _bases()) or _has_parts(value)):
            missing = _missing(value)
            nearly = len(missing) < len(_PARTS) - 1
            text = f"class {value.__qualname__} is no tool, it has no {', '.join(missing)}"
            return text, logging.WARNING if nearly else logging.DEBUG
        if abstract := getattr(value, "__abstractmethods__", None):
            text = f"class {value.__qualname__} is abstract, it has no {', '.join(sorted(abstract))}"
            return text, logging.WARNING
        if not getattr(value, "_plugin_discoverable", True):
            return f"class {value.__qualname__} is not discoverable", logging.DEBUG
        return None, 0
    if isinstance(value, (list, tuple)):
        for item in value:
            if inspect.isroutine(item):
                return f"its list holds {item!r} where a tool is expected", logging.WARNING
            why_not, _ = _unusable(item)
            if why_not is not None:
                return f"an item of its list is unusable: {why_not}", logging.WARNING
        return None, 0
    if _has_parts(value):
        return None, 0
    if inspect.isroutine(value):
        return _unusable_factory(value)
    return f"it names a {type(value).__name__}, which is no tool", logging.DEBUG


def _unusable_factory(function: Any) -> tuple[str | None, int]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{function!r} has no signature", logging.DEBUG
    if signature.return_annotation in (None, "None"):
        return f"function {function.__qualname__} returns nothing", logging.DEBUG
    if inspect.iscoroutinefunction(function):
        return (
            f"function {function.__qualname__} is async; a factory must be a plain function",
            logging.WARNING,
        )
    try:
        signature.bind()
    except TypeError:
        text = f"function {function.__qualname__} needs arguments; a factory takes none"
        return text, logging.WARNING
    return None, 0


def _flatten(value: Any) -> Iterator[Any]:
    """The tools and tool classes that a plugin stands for; a factory is called."""
    made = inspect.isroutine(value) and not _has_parts(value)
    if made:
        value = value()
        if value is None:
            return
    items = value if isinstance(value, (list, tuple)) else [value]
    for item in items:
        if made:
            why_not, _ = ("a function", 0) if inspect.isroutine(item) else _unusable(item)
            if why_not is not None:
                raise TypeError(f"its factory must return tools: {why_not}")
        yield item


def _make(source: Any, ctx: Any) -> Any:
    if not isinstance(source, type):
        return source
    create = getattr(source, "create", None)
    return create(ctx) if callable(create) else source()


def _fault(tool: Any) -> str | None:
    """What keeps a plugin's tool from being offered to a model, or None."""
    if not _has_parts(tool):
        return f"create() returned a {type(tool).__name__}, which is no tool"
    name = tool.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"bad name {name!r}: only letters, digits, _ and - are allowed, 64 at most"
    if not isinstance(tool.description, str):
        return f"tool {name}: the description is a {type(tool.description).__name__}, not a string"
    schema = tool.parameters
    if not isinstance(schema, dict):
        return f"tool {name}: parameters is a {type(schema).__name__}, not a dict"
    if schema.get("type", "object") != "object":
        return f"tool {name}: bad schema: the root's type must be object, not {schema['type']!r}"
    try:
        json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as exc:
        return f"tool {name}: bad schema: it has no JSON form: {exc}"
    warning = _compiled(schema).warning
    return None if warning is None else f"tool {name}: bad schema: {warning}"


def _first_of_each_name(entries: list[Any]) -> dict[str, Any]:
    """Of entry points with one name, the one whose distribution comes first by name."""
    chosen: dict[str, Any] = {}
    for entry in sorted(entries, key=_distribution):
        chosen.setdefault(entry.name, entry)
    return chosen


def _same(a: Any, b: Any) -> bool:
    """Whether two entry points are one that was found twice, as with a stale egg-info."""
    value = getattr(a, "value", None)
    return value is not None and (value, _distribution(a)) == (getattr(b, "value", None), _distribution(b))


def _distribution(entry: Any) -> str:
    name = getattr(getattr(entry, "dist", None), "name", None)
    return re.sub(r"[-_.]+", "-", name).lower() if isinstance(name, str) else ""
