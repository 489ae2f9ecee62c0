"""The future of a native call."""

from __future__ import annotations

import asyncio
from typing import Any


class CallFuture(asyncio.Future[Any]):
    """A future whose cancellation reaches the native call behind it.

    ``_call`` is set by whoever makes the future. It is a slot, since a ``dict`` for each call costs more.
    """

    __slots__ = ("_call",)

    _call: Any

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the future and ask the call to stop; see :meth:`asyncio.Future.cancel`."""
        self._call.cancel()
        return super().cancel(msg)
