"""The future of a native call."""

from __future__ import annotations

import asyncio
from typing import Any


class CallFuture(asyncio.Future[Any]):
    """A future whose cancellation reaches the native call behind it."""

    _call: Any = None

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the future and ask the call to stop; see :meth:`asyncio.Future.cancel`."""
        call = self._call
        if call is not None:
            self._call = None
            call.cancel()
        return super().cancel(msg)
