"""``nanobot-tools doctor``: what is wrong here, and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from ._app import FAILED, OK, Json, command, finish
from ._output import print_json, print_table, say

if TYPE_CHECKING:
    from ..compat._doctor import Diagnosis

__all__ = ["add_to"]


@command
def doctor(as_json: Json = False) -> None:
    """Say what the drop-in does with the nanobot of this environment, its MCP servers and its plugins.

    Nothing is started. The exit status is 1 if something should be mended.
    """
    found = _diagnosis()
    if as_json:
        print_json(found.as_dict())
    else:
        _show(found)
    finish(FAILED if found.findings else OK)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


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
    for finding in found.findings:
        say(f"! {finding}")
    if not found.findings:
        say("Nothing to mend.")
