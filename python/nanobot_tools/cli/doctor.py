"""``nanobot-tools doctor``: what is wrong here, and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import _config
from ._app import FAILED, OK, CommandError, Config, Json, Wait, command, finish
from ._checks import Check, after_start, before_start
from ._output import print_json, print_table, say

if TYPE_CHECKING:
    from ..compat._doctor import Diagnosis

__all__ = ["add_to"]


@command
def doctor(
    config: Config = None,
    start: Annotated[bool, typer.Option(help="Start the servers, and see how they do.")] = True,
    timeout: Wait = 30,
    as_json: Json = False,
) -> None:
    """Say what is wrong with the configuration, its MCP servers, plugins and the drop-in, and what to do.

    Each server is looked at step by step: its entry, its command or address, its start and handshake, its
    lists, whether its schemas can be used (and for which providers of models they are adapted), whether its
    names are unique, and whether it answers. Where nanobot is installed, its modules are imported to see what
    the drop-in does with them. The exit status is 1 if something should be mended.
    """
    found = _diagnosis()
    findings = list(found.findings)
    try:
        configured = _config.read(config)
    except CommandError as exc:
        if config is not None and not config.exists():
            raise
        findings.append(f"{exc}: mend the file")
        configured = _config.Configuration(None)
    if configured.path is None and not findings:
        text = "there is no configuration of servers; one is named with --config or NBTOOLS_CONFIG"
        note: str | None = text
    else:
        note = f"configuration of servers: {configured.path}" if configured.path else None
    checks = _checked(configured, found, start, timeout)
    findings += [
        text for text in configured.warnings if not text.startswith("MCP server ") and text not in findings
    ]
    findings += [str(check) for check in checks if not check.ok]
    if as_json:
        path = str(configured.path) if configured.path else None
        shown = {"configuration": path, "checks": [check.as_dict() for check in checks]}
        print_json({**found.as_dict(), **shown, "findings": findings})
    else:
        _show(found)
        if note is not None:
            say(note)
        if checks:
            rows = [(c.server, c.step, "ok" if c.ok else "!", c.detail) for c in checks]
            print_table(("MCP server", "step", "", "found"), rows)
        for finding in findings:
            say(f"! {finding}")
        if not findings:
            say("Nothing to mend.")
    finish(FAILED if findings else OK)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def _checked(configured: _config.Configuration, found: Diagnosis, start: bool, timeout: float) -> list[Check]:
    """What there is to say of each server, but for what the drop-in says of it already."""
    same = found.config is not None and configured.path == Path(found.config)
    theirs = {server.name: server for server in found.servers} if same else {}
    checks = []
    for check in before_start(configured):
        told = theirs.get(check.server)
        if check.ok or told is None or told.backend != "nobody":
            checks.append(check)
    if not start:
        return checks
    ready = {check.server for check in checks} - {check.server for check in checks if _is_fatal(check)}
    left = {name for name in ready if name in theirs and theirs[name].backend == "sdk"}
    checks += [
        Check(name, "start", True, f"left to nanobot's own client: {theirs[name].reason}")
        for name in sorted(left)
    ]
    wanted = configured.only([name for name in configured.servers if name in ready - left])
    if wanted.servers:
        from . import _session

        async def work() -> list[Check]:
            async with _session.connected(wanted, timeout=timeout) as session:
                return await after_start(session)

        checks += _session.run(work())
    order = list(configured.servers)
    return sorted(checks, key=lambda check: order.index(check.server))


def _is_fatal(check: Check) -> bool:
    """Whether it is of no use to start a server of which that is true."""
    return not check.ok and "is ignored" not in check.detail


def _diagnosis() -> Diagnosis:
    """What the drop-in finds, with the logs of nanobot and ours kept out of what is printed."""
    import logging

    from ..compat._doctor import diagnose

    logging.basicConfig(level=logging.ERROR, format="%(levelname)s: %(message)s")
    with _quiet():
        return diagnose()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    try:
        from loguru import logger  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        yield
        return
    logger.disable("nanobot")
    try:
        yield
    finally:
        logger.enable("nanobot")


def _show(found: Diagnosis) -> None:
    say(found.summary)
    if found.targets:
        print_table(
            ("part", "function of nanobot's", "status", "reason"),
            [
                (t.part, t.name.removeprefix("nanobot.agent."), t.status, t.reason or "")
                for t in found.targets
            ],
        )
    if found.config is not None:
        say(f"configuration: {found.config}, our options: {found.options or 'none'}")
    if found.servers:
        print_table(
            ("MCP server", "client", "reason"), [(s.name, s.backend, s.reason) for s in found.servers]
        )
    if found.plugins:
        print_table(
            ("plugin", "distribution", "names", "verdict", "reason"),
            [(p.name, p.distribution, p.names, p.verdict, p.reason) for p in found.plugins],
        )
