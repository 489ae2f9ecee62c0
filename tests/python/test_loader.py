"""The loader finds tools and plugins by the reference's rules; what it cannot use, it says so and goes on."""

# ruff: noqa: E501 - programs for the reference

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import pickle
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from nanobot_tools import loader as module
from nanobot_tools._legacy import legacy
from nanobot_tools.base import Tool, ToolResult, tool_parameters
from nanobot_tools.context import ContextAware, RequestContext, ToolContext
from nanobot_tools.decorator import tool
from nanobot_tools.loader import ToolLoader
from reference_code import both, needs_reference, run

CTX = ToolContext(config={}, workspace="/w")


class Registry:
    """As much of a registry as the loader needs."""

    def __init__(self) -> None:
        self.tools: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        return name in self.tools

    def register(self, one: Any) -> None:
        self.tools[one.name] = one


class Entry:
    """An entry point of a distribution."""

    def __init__(self, name: str, value: Any, dist: str | None = None, spec: str | None = None) -> None:
        self.name = name
        self._value = value
        self.dist = types.SimpleNamespace(name=dist) if dist else None
        if spec:
            self.value = spec

    def load(self) -> Any:
        if isinstance(self._value, BaseException):
            raise self._value
        return self._value


def make(class_name: str = "Made", tool_name: str = "made", **body: Any) -> type[Tool]:
    async def execute(self, **kwargs: Any) -> Any:
        return kwargs.get("text", "ok")

    parts = {
        "name": tool_name,
        "description": "Made.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        "execute": execute,
    }
    return type(class_name, (Tool,), {**parts, **body})


@pytest.fixture
def load(monkeypatch, caplog):
    """Load these plugins beside these classes; gives the names, the tools and the log."""
    caplog.set_level(logging.DEBUG, "nanobot_tools.loader")

    def run(*entries: Entry, classes: Any = (), scope: str = "core", registry: Registry | None = None):
        monkeypatch.setattr(
            module, "entry_points", lambda group: list(entries) if group == "nanobot.tools" else []
        )
        into = registry or Registry()
        names = ToolLoader(test_classes=list(classes)).load(CTX, into, scope=scope)
        return names, into.tools, [(r.levelname, r.getMessage()) for r in caplog.records]

    return run


# -- discovery --


@pytest.fixture
def package(tmp_path, monkeypatch):
    root = tmp_path / "some_tools"
    root.mkdir()
    body = """
from nanobot_tools.base import Tool
class _Shared(Tool):
    description = "d"
    parameters = {}
    async def execute(self, **kwargs): pass
"""
    (root / "__init__.py").write_text("")
    (root / "_private.py").write_text(
        "from .zebra import Zebra as Hidden\nclass Private(Hidden): name = 'p'\n"
    )
    (root / "schema.py").write_text("raise RuntimeError('an infrastructure module must not be imported')\n")
    (root / "broken.py").write_text("import does_not_exist_anywhere\n")
    (root / "leaves.py").write_text("raise SystemExit(3)\n")
    (root / "zebra.py").write_text(
        body
        + "class Zebra(_Shared): name = 'zebra'\n"
        + "class Ape(_Shared): name = 'ape'\n"
        + "class Abstract(Tool): pass\n"
        + "class Not(_Shared): name = 'n'; _plugin_discoverable = False\n"
        + "class NoTool: pass\n"
    )
    (root / "again.py").write_text("from .zebra import Ape, Zebra, Abstract, Tool\n")
    monkeypatch.syspath_prepend(tmp_path)
    import some_tools

    yield some_tools
    for name in [name for name in sys.modules if name.partition(".")[0] == "some_tools"]:
        del sys.modules[name]


def test_discovery_takes_each_ready_class_once_in_order_of_names(package, caplog):
    loader = ToolLoader(package)
    assert [cls.__name__ for cls in loader.discover()] == ["Ape", "Zebra"]
    assert loader.discover() == loader.discover()
    texts = [record.getMessage() for record in caplog.records]
    assert any(t.startswith("Failed to import tool module: broken (ModuleNotFoundError: ") for t in texts)
    assert any(t.startswith("Failed to import tool module: leaves (SystemExit: 3") for t in texts)
    assert len(texts) == 2


def test_the_packages_own_tools_are_the_default():
    assert [cls.__name__ for cls in ToolLoader().discover()] == ["FindFilesTool", "GrepTool"]


def test_classes_for_tests_replace_discovery():
    cls = make()
    given = [cls]
    found = ToolLoader(test_classes=given).discover()
    assert found == given
    assert found is not given


# -- loading --


def test_scope_enabled_and_create_decide_what_is_registered(load):
    class Config(make("Config", "config")):
        @classmethod
        def create(cls, ctx):
            made = cls()
            made.workspace = ctx.workspace
            return made

    names, tools, log = load(
        classes=[
            Config,
            make("Sub", "sub", _scopes={"subagent"}),
            make("Off", "off", enabled=classmethod(lambda cls, ctx: False)),
            make("Raises", "raises", create=classmethod(lambda cls, ctx: 1 / 0)),
        ]
    )
    assert names == ["config"]
    assert tools["config"].workspace == "/w"
    assert log == [("ERROR", "Failed to register tool: Raises (ZeroDivisionError: division by zero)")]
    assert load(classes=[make("Sub", "sub", _scopes={"subagent"})], scope="subagent")[0] == ["sub"]


def test_a_builtin_wins_over_a_plugin_and_others_are_replaced_with_a_warning(load):
    registry = Registry()
    registry.register(make("Old", "host")())
    names, tools, log = load(
        Entry("a", make("Plugin", "builtin")),
        Entry("b", make("Host", "host")),
        Entry("c", make("Second", "host")),
        classes=[make("Builtin", "builtin")],
        registry=registry,
    )
    assert names == ["builtin", "host", "host"]
    assert type(tools["builtin"]).__name__ == "Builtin"
    assert log == [
        ("WARNING", "Plugin Plugin skipped: conflicts with built-in tool builtin"),
        ("WARNING", "Tool name collision: host from Host overwrites existing"),
        ("WARNING", "Tool name collision: host from Second overwrites existing"),
    ]


RULES = """
import asyncio, types
from nanobot.agent.tools import loader as module
from nanobot.agent.tools.base import Tool, ToolResult
from nanobot.agent.tools.context import ToolContext

def make(class_name, tool_name, **body):
    async def execute(self, **kwargs):
        return kwargs["text"]
    parts = {"name": tool_name, "description": "d", "parameters": {}, "execute": execute}
    return type(class_name, (Tool,), {**parts, **body})

class Broken:
    name = "broken"
    def load(self): raise ImportError("no such thing")

def entry(name, value):
    return types.SimpleNamespace(name=name, load=lambda: value)

class Registry:
    def __init__(self): self.tools = {}
    def has(self, name): return name in self.tools
    def register(self, tool): self.tools[tool.name] = tool

class Abstract(Tool):
    pass

module.entry_points = lambda group: [
    entry("z", make("Z", "z")), Broken(), entry("a", make("A", "a", _scopes={"core", "x"})),
    entry("clash", make("Clash", "builtin")), entry("abstract", Abstract), entry("module", types),
    entry("hidden", make("Hidden", "hidden", _plugin_discoverable=False)), entry("text", "text"),
    entry("off", make("Off", "off", enabled=classmethod(lambda cls, ctx: False))),
    entry("bad", make("Bad", "bad", create=classmethod(lambda cls, ctx: 1 / 0))),
]
classes = [make("Builtin", "builtin"), make("X", "x", _scopes={"x"})]
result = []
for scope in ("core", "x", "none"):
    registry = Registry()
    loader = module.ToolLoader(test_classes=classes)
    result.append(loader.load(ToolContext(config=None, workspace="/w"), registry, scope=scope))
    result.append(sorted(registry.tools))
    result.append(sorted(loader._discover_plugins()))
registry = Registry()
module.ToolLoader(test_classes=[]).load(ToolContext(config=None, workspace="/w"), registry)
tool = registry.tools["a"]
for text in ("Error: x", "error: x", " Error: x", "Error", ToolResult("Error: x"), ToolResult.error("x"), {"a": 1}, None):
    got = asyncio.run(tool.execute(text=text))
    result.append([got, isinstance(got, ToolResult), getattr(got, "is_error", None)])
result.append(tool.to_schema())
result.append([tool.read_only, tool.exclusive, tool.concurrency_safe, tool.config_key, tool._wrapped.name])
"""


@needs_reference
def test_the_rules_are_the_references():
    before = module.entry_points
    try:
        theirs, ours = both(RULES)
    finally:
        module.entry_points = before
    assert ours == theirs


@needs_reference
def test_nanobots_own_classes_are_found_and_loaded():
    theirs, ours, names, kinds, results = run(f"""
import asyncio, inspect, sys, types
sys.path.append({str(Path(module.__file__).parents[1])!r})
import nanobot.agent.tools as package
from nanobot.agent.tools.base import Tool, ToolResult, tool_parameters
from nanobot.agent.tools.loader import ToolLoader as Theirs
from nanobot_tools import loader as module
from nanobot_tools.base import is_tool_error_result
from nanobot_tools.context import ToolContext

@tool_parameters({{"type": "object", "properties": {{"text": {{"type": "string"}}}}}})
class Own(Tool):
    name = "own"
    description = "d"
    async def execute(self, text):
        return self.error(text) if text == "marked" else text

class Plain(Own):
    name = "plain"
    def execute(self, text):
        return Own.execute(self, text)

class Registry(dict):
    has = dict.__contains__
    def register(self, tool): self[tool.name] = tool

def entry(value):
    return types.SimpleNamespace(name=value.__name__, load=lambda: value)

module.entry_points = lambda group: [entry(Own), entry(Plain)]
registry = Registry()
names = module.ToolLoader(test_classes=[]).load(ToolContext(), registry)
result = [
    [cls.__name__ for cls in Theirs().discover()],
    [cls.__name__ for cls in module.ToolLoader(package).discover()],
    names,
    [[isinstance(t, Own), isinstance(t, Tool), inspect.iscoroutinefunction(t.execute)] for t in registry.values()],
    [is_tool_error_result(asyncio.run(t.execute(text=text)))
     for t in registry.values() for text in ("Error: x", "marked", "fine")],
]
""")
    assert ours == theirs
    assert len(ours) > 10
    assert names == ["own", "plain"]
    assert kinds == [[True, True, True]] * 2
    assert results == [True, True, False] * 2


# -- plugins --


def test_a_plugin_that_fails_to_load_is_named_with_the_reason(load):
    names, _, log = load(
        Entry("bad", ImportError("no module")), Entry("exits", SystemExit(2)), Entry("good", make())
    )
    assert names == ["made"]
    assert log == [
        ("ERROR", "Failed to load tool plugin: bad (ImportError: no module)"),
        ("ERROR", "Failed to load tool plugin: exits (SystemExit: 2)"),
    ]


def test_entry_points_that_cannot_be_read_are_logged(monkeypatch, caplog):
    monkeypatch.setattr(module, "entry_points", lambda group: 1 / 0)
    assert ToolLoader(test_classes=[])._discover_plugins() == {}
    assert "ZeroDivisionError" in caplog.text


def test_instances_lists_and_factories_are_taken(load):
    one = make("One", "one")()

    @tool
    def two(a: int) -> int:
        return a

    def factory():
        return [make("Four", "four"), make("Five", "five")()]

    names, tools, log = load(
        Entry("one", one), Entry("two", two), Entry("list", [make("Three", "three")]), Entry("f", factory)
    )
    assert names == ["one", "two", "three", "four", "five"]
    assert tools["two"] is two
    assert isinstance(tools["one"], type(one))
    assert log == []


def test_a_duck_typed_class_is_taken(load):
    class Duck:
        name = "duck"
        description = "d"
        parameters = {"type": "object"}

        async def execute(self, **kwargs):
            return "Error: quack"

    names, tools, _ = load(Entry("duck", Duck))
    assert names == ["duck"]
    assert isinstance(tools["duck"], Duck)
    assert asyncio.run(tools["duck"].execute()).is_error


def activate() -> None:
    raise AssertionError("an entry point that only activates something is not called")


@pytest.mark.parametrize(
    "value", [activate, types, object(), "text", None, ToolContext, type("Empty", (), {})], ids=repr
)
def test_what_is_no_tool_is_left_alone_quietly(load, value):
    names, _, log = load(Entry("other", value))
    assert names == []
    assert [level for level, _ in log] == ["DEBUG"]
    assert log[0][1].startswith("Tool plugin other skipped: ")


def needs_arguments(a):
    return a


async def is_async():
    return []


class Abstract(Tool):
    @property
    def name(self) -> str:
        return "abstract"


class Nearly:
    name = "nearly"
    description = "It has no parameters."

    async def execute(self): ...


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Abstract, "class Abstract is abstract, it has no description, execute, parameters"),
        (Nearly, "class Nearly is no tool, it has no parameters"),
        (needs_arguments, "function needs_arguments needs arguments; a factory takes none"),
        (is_async, "function is_async is async; a factory must be a plain function"),
        ([make(), "x"], "an item of its list is unusable: it names a str, which is no tool"),
    ],
)
def test_what_nearly_is_a_tool_is_refused_aloud(load, value, text):
    names, _, log = load(Entry("p", value))
    assert names == []
    assert log == [("WARNING", f"Tool plugin p skipped: {text}")]


def test_a_factory_that_fails_or_gives_no_tools_is_named(load):
    names, _, log = load(
        Entry("fails", lambda: 1 / 0), Entry("text", lambda: ["x"]), Entry("nothing", lambda: None)
    )
    assert names == []
    assert log == [
        ("ERROR", "Failed to load tool plugin: fails (ZeroDivisionError: division by zero)"),
        (
            "ERROR",
            "Failed to load tool plugin: text (TypeError: its factory must return tools: it names a str, which "
            "is no tool)",
        ),
        ("DEBUG", "Tool plugin nothing skipped: it gives no tools"),
    ]


def test_two_packages_with_one_entry_point_name_are_told_apart(load):
    names, _, log = load(
        Entry("same", make("B", "b"), "Beta_Tools"),
        Entry("other", make("O", "o"), "zeta"),
        Entry("same", make("A", "a"), "alpha.tools"),
    )
    assert names == ["o", "a"]
    assert log == [
        (
            "WARNING",
            "Tool plugin same of beta-tools refused: alpha-tools has an entry point of that name already",
        )
    ]


def test_one_entry_point_found_twice_is_one(load):
    cls = make()
    names, _, log = load(Entry("p", cls, "dist", "m:T"), Entry("p", cls, "dist", "m:T"))
    assert names == ["made"]
    assert log == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"name": "a b"}, "bad name 'a b': only letters, digits, _ and - are allowed, 64 at most"),
        ({"name": "x" * 65}, "bad name"),
        ({"name": 5}, "bad name 5"),
        ({"description": None}, "tool made: the description is a NoneType, not a string"),
        ({"parameters": None}, "tool made: parameters is a NoneType, not a dict"),
        (
            {"parameters": {"type": "array"}},
            "tool made: bad schema: the root's type must be object, not 'array'",
        ),
        ({"parameters": {"default": object()}}, "tool made: bad schema: it has no JSON form"),
        ({"parameters": {"properties": {"a": {"type": "strnig"}}}}, "tool made: bad schema: "),
        ({"create": classmethod(lambda cls, ctx: 5)}, "create() returned a int, which is no tool"),
    ],
)
def test_a_bad_name_or_schema_is_refused_aloud(load, body, text):
    names, tools, log = load(Entry("p", make("Made", **body)), Entry("good", make("Good", "good")))
    assert names == ["good"]
    assert list(tools) == ["good"]
    assert [level for level, _ in log] == ["ERROR"]
    assert log[0][1].startswith(f"Plugin Made (entry point p) refused: {text}")


# -- old plugins --


def test_the_error_prefix_makes_an_error_and_nothing_else_does(load):
    _, tools, _ = load(Entry("p", make()))
    run = lambda text: asyncio.run(tools["made"].execute(text=text))  # noqa: E731
    assert run("Error: no").is_error
    assert type(run("Error: no")) is ToolResult
    assert type(run("An Error: no")) is str
    marked = ToolResult("Error: quoted")
    assert run(marked) is marked


def test_the_wrapper_does_not_hide_the_plugins_class():
    class Marked:
        pass

    class Plugin(make("Base"), Marked):
        extra = 1

        def set_context(self, ctx):
            self.ctx = ctx

    wrapped = legacy(Plugin())
    for cls in (Plugin, Marked, Tool, ContextAware):
        assert isinstance(wrapped, cls)
    wrapped.set_context(RequestContext("c", "chat"))
    assert wrapped.ctx.chat_id == "chat"
    wrapped.extra = 2
    assert wrapped._wrapped.extra == 2
    assert "extra" in dir(wrapped)
    assert legacy(wrapped) is wrapped
    with pytest.raises(AttributeError):
        wrapped.nothing  # noqa: B018
    assert not isinstance(legacy(make()()), ContextAware)


class Plugin(make("Base")):
    """At the top, so that it can be pickled."""


def test_a_wrapped_plugin_can_be_copied():
    wrapped = legacy(Plugin())
    for again in (copy.copy(wrapped), copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        assert isinstance(again, Plugin)
        assert type(again) is type(wrapped)
        assert asyncio.run(again.execute(text="Error: x")).is_error


def test_a_plain_execute_stays_plain_and_is_judged_too():
    async def later(text: str) -> str:
        return text

    sync = legacy(make("Sync", execute=lambda self, text: text)())
    awaitable = legacy(make("Awaitable", execute=lambda self, text: later(text))())
    assert not inspect.iscoroutinefunction(sync.execute)
    assert sync.execute(text="Error: x").is_error
    assert asyncio.run(awaitable.execute(text="Error: x")).is_error
    assert inspect.iscoroutinefunction(legacy(make()()).execute)


def test_a_plain_execute_of_nanobots_class_is_called_on_the_loop():
    cls = make("Theirs", execute=lambda self, text: text)
    cls.__module__ = "nanobot.plugins.x"
    wrapped = legacy(cls())
    assert inspect.iscoroutinefunction(wrapped.execute)
    assert asyncio.run(wrapped.execute(text="Error: x")).is_error


def test_parameters_named_self_reach_a_wrapped_plugin():
    def execute(this, /, **kwargs):
        return str(kwargs)

    assert legacy(make(execute=execute)()).execute(self=1, name=2) == "{'self': 1, 'name': 2}"


def test_only_what_a_plugin_overrides_is_seen_as_overridden():
    plain = type(legacy(make("Plain")()))
    own = type(legacy(make("Own", validate_params=lambda self, params: ["no"])()))
    assert not any(
        hasattr(plain, name) for name in ("cast_params", "validate_params", "to_schema", "_cast_value")
    )
    assert "validate_params" in vars(own)
    assert "cast_params" not in vars(own)
    constant = tool_parameters({"type": "object"})(make("Constant"))
    wrapped = legacy(constant())
    assert type(wrapped).parameters is constant.parameters
    assert wrapped.parameters == {"type": "object"}


def test_tools_of_functions_are_no_old_plugins(load):
    @tool
    def says() -> str:
        return "Error: is what I say"

    _, tools, _ = load(Entry("p", says))
    assert type(tools["says"].execute()) is str
