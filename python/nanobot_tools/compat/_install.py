"""Installing the drop-in, taking it out again, and saying what it does."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from .. import __version__
from .._imports import forget, when_imported
from . import _nanobot
from ._graft import Graft, Status
from ._log import hand_on, hand_on_no_more
from ._settings import PARTS, Switches
from ._table import MODULES, TARGETS

__all__ = ["Report", "install", "report", "uninstall"]

_log = logging.getLogger("nanobot_tools.compat")


@dataclass(frozen=True)
class Report:
    """What the drop-in does in this process.

    Attributes:
        nanobot: The version of nanobot that is loaded or installed; ``None`` without one.
        installed: Whether :func:`install` was called, and not :func:`uninstall`.
        why_not: Why nothing is active although it is installed, or ``None``.
        targets: ``(part, target, status, reason)`` of each function of nanobot's: ``"active"`` (ours runs),
            ``"waiting"`` (its module was not imported yet), ``"absent"`` (this nanobot has none),
            ``"skipped"`` (it does not look as expected and was left alone) or ``"off"`` (switched off).
        complaints: Switches in the environment that nobody understands.
    """

    nanobot: str | None
    installed: bool
    why_not: str | None
    targets: tuple[tuple[str, str, Status, str | None], ...]
    complaints: tuple[str, ...]

    @property
    def active(self) -> tuple[str, ...]:
        """The parts of which something is active."""
        return tuple(part for part in PARTS if any(t[0] == part and t[2] == "active" for t in self.targets))

    @property
    def skipped(self) -> tuple[tuple[str, str], ...]:
        """Target and reason of each that was left alone because it is not what was expected."""
        return tuple(
            (target, reason or "") for _, target, status, reason in self.targets if status == "skipped"
        )

    def __str__(self) -> str:
        head = f"nanobot-tools {__version__}"
        if self.nanobot is None:
            return f"{head}: there is no nanobot"
        head = f"{head}: nanobot {self.nanobot}"
        if not self.installed or self.why_not is not None:
            return f"{head}, nothing active: {self.why_not or 'not installed'}"
        parts = f"{head}, active: {', '.join(self.active) or 'nothing'}"
        left = [f"{target} ({reason})" for target, reason in self.skipped]
        return f"{parts}; skipped: {', '.join(left)}" if left else parts


class _Installation:
    """The grafts of one :func:`install`, and the modules that they wait for."""

    def __init__(self, switches: Switches) -> None:
        self.switches = switches
        self.why_not = switches.off
        self.grafts = [Graft(target) for target in TARGETS]
        self._hooks: list[tuple[str, functools.partial[None]]] = []
        self._due: set[str] = set()
        for graft in self.grafts:
            reason = switches.off or switches.disabled.get(graft.target.part)
            if reason is not None:
                graft.leave("off", reason)

    def begin(self) -> None:
        """Replace what is there, and wait for the rest."""
        if self.why_not is not None:
            return
        for graft in self._waiting():
            if not _nanobot.has_module(graft.target.module):
                graft.leave("absent", "this nanobot has no such module")
        wanted = {graft.target.module for graft in self._waiting()}
        # In the order of the table: later modules import names of earlier ones.
        modules = [name for name in MODULES if name in wanted]
        self._due = set(modules)
        for name in modules:
            hook = functools.partial(self._imported, name)
            self._hooks.append((name, hook))
            when_imported(name, hook)

    def _waiting(self) -> Iterator[Graft]:
        return (graft for graft in self.grafts if graft.status == "waiting")

    def _imported(self, name: str, module: ModuleType) -> None:
        version = _nanobot.version()
        if version is not None and not _nanobot.is_known(version):
            if self.why_not is None:
                self.why_not = f"nanobot {version} is not known to this version of nanobot-tools"
                hand_on()
                _log.warning("%s", report())
            return
        hand_on()
        for graft in self._waiting():
            if graft.target.module == name:
                graft.apply(module)
        self._due.discard(name)
        if not self._due:
            self._say()

    def _say(self) -> None:
        for complaint in self.switches.complaints:
            _log.warning("%s", complaint)
        state = report()
        _log.log(logging.WARNING if state.skipped else logging.INFO, "%s", state)

    def undo(self) -> None:
        """Put everything back."""
        for name, hook in self._hooks:
            forget(name, hook)
        for graft in reversed(self.grafts):
            graft.undo()
        hand_on_no_more()


_installation: _Installation | None = None
_lock = threading.RLock()


def install() -> Report:
    """Make nanobot use this package, in this process, from now on.

    Functions in modules of nanobot's that are imported already are replaced at once, and others as soon as
    they are. Installing again changes nothing. What does not look as expected is left alone; nothing is
    raised into nanobot. Once all is done, one line in nanobot's log says what is active.

    Returns:
        What is active so far; see :func:`report`.
    """
    global _installation
    with _lock:
        if _installation is None:
            _installation = _Installation(Switches())
            _installation.begin()
        return report()


def uninstall() -> Report:
    """Put everything back as it was before :func:`install`.

    MCP servers that were connected stay connected as long as nanobot holds them.
    """
    global _installation
    with _lock:
        if _installation is not None:
            installation, _installation = _installation, None
            installation.undo()
        return report()


def report() -> Report:
    """What the drop-in does now."""
    installation = _installation
    if installation is None:
        return Report(_nanobot.version(), False, None, (), ())
    return Report(
        _nanobot.version(),
        True,
        installation.why_not,
        tuple((g.target.part, g.target.path, g.status, g.reason) for g in installation.grafts),
        tuple(installation.switches.complaints),
    )
