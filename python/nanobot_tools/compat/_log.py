"""Log records of this package, said in nanobot's name.

nanobot logs with loguru, and is silenced (``--no-logs``) by the name of the module that logs. What
``nanobot_tools`` says through :mod:`logging` is therefore handed on by a function whose module has a name of
nanobot's, so that it goes where nanobot's own records go, and is silent when they are.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["hand_on", "hand_on_no_more"]

_NAME = "nanobot_tools"
#: loguru asks the frame that logs for this name.
_SPEAKER = "nanobot.agent.tools.nanobot_tools"

#: Runs under another module's name. Methods are looked up at each call, since they are replaced in tests.
_SPEECH = """
def say(level, text):
    getattr(logger, level)("{}", text)

def say_with(exception, level, text):
    getattr(logger.opt(exception=exception), level)("{}", text)
"""

_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))

_handler: logging.Handler | None = None
_before: tuple[bool, int] | None = None


class _ToLoguru(logging.Handler):
    """Hands records to loguru; those that nobody would see are not even formatted."""

    def __init__(self, logger: Any) -> None:
        super().__init__()
        namespace: dict[str, Any] = {"__name__": _SPEAKER, "logger": logger}
        exec(_SPEECH, namespace)
        self._say, self._say_with = namespace["say"], namespace["say_with"]

    def emit(self, record: logging.LogRecord) -> None:
        """Hand one record on."""
        try:
            level = next((name for least, name in _LEVELS if record.levelno >= least), "debug")
            if record.exc_info is not None and record.exc_info[1] is not None:
                self._say_with(record.exc_info[1], level, record.getMessage())
            else:
                self._say(level, record.getMessage())
        except Exception:
            self.handleError(record)


def hand_on() -> None:
    """Send the package's records to loguru from now on, if nanobot uses it, and nowhere else."""
    global _handler, _before
    if _handler is not None:
        return
    try:
        from loguru import logger  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return
    own = logging.getLogger(_NAME)
    _handler, _before = _ToLoguru(logger), (own.propagate, own.level)
    own.addHandler(_handler)
    own.propagate = False
    # loguru's sinks choose; servers' own records and other details stay what they are.
    if own.level == logging.NOTSET:
        own.setLevel(logging.INFO)


def hand_on_no_more() -> None:
    """Let the records go their usual way again."""
    global _handler, _before
    if _handler is None or _before is None:
        return
    own = logging.getLogger(_NAME)
    own.removeHandler(_handler)
    own.propagate, level = _before
    own.setLevel(level)
    _handler = _before = None
