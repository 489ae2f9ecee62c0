"""Every exception has the stable code of the core's error, and a built-in class beside ours."""

from __future__ import annotations

import copy
import pickle

import pytest
from nanobot_tools import errors

CLASSES = [
    (errors.ToolError, "tool_error", Exception),
    (errors.ToolNotFoundError, "not_found", LookupError),
    (errors.InvalidArgumentsError, "invalid_arguments", ValueError),
    (errors.ToolTimeoutError, "timeout", TimeoutError),
    (errors.ToolCancelledError, "cancelled", Exception),
    (errors.ToolRefusedError, "refused", PermissionError),
    (errors.MCPConnectionError, "connection", ConnectionError),
    (errors.ConfigError, "config", ValueError),
    (errors.InternalError, "internal", RuntimeError),
    (errors.LoopRunningError, "loop_running", RuntimeError),
]


@pytest.mark.parametrize(("cls", "code", "builtin"), CLASSES)
def test_each_class_has_its_code_its_text_and_its_built_in_base(cls, code, builtin):
    exc = cls("what happened")
    assert cls.code == code
    assert str(exc) == "what happened"
    assert isinstance(exc, errors.NanobotToolsError)
    assert isinstance(exc, builtin)
    assert str(pickle.loads(pickle.dumps(exc))) == "what happened"


def test_all_classes_are_tested():
    tested = {cls.__name__ for cls, _, _ in CLASSES} | {"MCPError", "NanobotToolsError"}
    assert tested == set(errors.__all__)


def test_an_error_of_a_server_shows_message_and_code():
    exc = errors.MCPError(-32602, "bad")
    assert (exc.code, exc.rpc_code, exc.message) == ("remote", -32602, "bad")
    assert str(exc) == "bad [code -32602]"
    assert copy.copy(exc).rpc_code == -32602
    assert (exc.data, errors.MCPError(1, "m", {"a": 1}).data) == (None, {"a": 1})


def test_failures_are_kept_one_by_one():
    exc = errors.InvalidArgumentsError("no", [("/a", "type", "a should be integer")])
    assert exc.failures == (("/a", "type", "a should be integer"),)
    assert errors.InvalidArgumentsError("no").failures == ()
    assert pickle.loads(pickle.dumps(exc)).failures == exc.failures
