"""The call that is under way, as a tool's own code sees it.

Example:
    >>> call = current_call()
    >>> if call is not None:
    ...     call.progress(3, total=10, message="three of ten")
    ...     call.raise_if_cancelled()
"""

from __future__ import annotations

from ._native import CurrentCall, current_call

__all__ = ["CurrentCall", "current_call"]
