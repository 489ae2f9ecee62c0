"""What MCP servers log reaches Python's logging, under a logger for each server."""

from __future__ import annotations

import logging

import pytest
from mcp_servers import asking, eventually, everything, needs_node, say
from nanobot_tools import _native, connect_mcp_server

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
    "bogus": logging.INFO,
}


def of(caplog: pytest.LogCaptureFixture, server: str) -> list[logging.LogRecord]:
    _native.flush_logs()
    return [record for record in caplog.records if record.name == f"nanobot_tools.mcp.server.{server}"]


async def test_levels_texts_and_the_servers_own_logger_arrive(caplog: pytest.LogCaptureFixture) -> None:
    """In order; what is no text arrives as JSON."""
    caplog.set_level(logging.DEBUG, "nanobot_tools.mcp.server.s")
    async with await connect_mcp_server("s", asking()) as connection:
        for level in LEVELS:
            params = {"level": level, "data": f"100% {level}", "logger": "db"}
            await say(connection, "tell", method="notifications/message", params=params)
        params = {"level": "info", "data": {"a": [1, None]}}
        await say(connection, "tell", method="notifications/message", params=params)
    records = of(caplog, "s")
    assert [(r.getMessage(), r.levelno) for r in records[:-1]] == [
        (f"100% {level}", number) for level, number in LEVELS.items()
    ]
    extras = [(r.__dict__["mcp_server"], r.__dict__["mcp_logger"], r.__dict__["mcp_level"]) for r in records]
    assert extras == [("s", "db", level) for level in LEVELS] + [("s", None, "info")]
    assert records[-1].getMessage() == '{"a":[1,null]}'


async def test_a_logger_that_is_off_hears_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Python's own levels hold."""
    caplog.set_level(logging.ERROR, "nanobot_tools.mcp.server.s")
    async with await connect_mcp_server("s", asking()) as connection:
        for level in ("info", "error"):
            params = {"level": level, "data": level}
            await say(connection, "tell", method="notifications/message", params=params)
    assert [record.getMessage() for record in of(caplog, "s")] == ["error"]


async def test_a_server_that_floods_the_log_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    """Calls go on meanwhile; what is lost, if any, is counted."""
    caplog.set_level(logging.INFO, "nanobot_tools.mcp.server.s")
    async with await connect_mcp_server("s", asking()) as connection:
        params = {"level": "info", "data": "x"}
        await say(connection, "tell", method="notifications/message", params=params, times=15_000)
        await connection.ping()
    texts = [record.getMessage() for record in of(caplog, "s")]
    assert texts.count("x") <= 15_000
    assert texts.count("x") == 15_000 or any("are lost" in text for text in texts)


@needs_node
async def test_the_official_server_logs_when_it_is_told_to(caplog: pytest.LogCaptureFixture) -> None:
    """server-everything over stdio."""
    caplog.set_level(logging.DEBUG, "nanobot_tools.mcp.server.ev")
    async with await connect_mcp_server("ev", everything()) as connection:
        await connection.set_logging_level("debug")
        await connection.call_tool("toggle-simulated-logging")
        await eventually(lambda: of(caplog, "ev"))
        await connection.call_tool("toggle-simulated-logging")
