"""What a function returned, as something that a model can be shown."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Set
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

__all__ = ["plain", "shown"]

#: Content blocks of chat messages: what their type is, and the key that holds their content.
_BLOCKS = {
    "text": "text",
    "image_url": "image_url",
    "input_audio": "input_audio",
    "file": "file",
    "image": "source",
    "document": "source",
}


def shown(result: Any) -> Any:
    """The result as the model gets it.

    Text (also a ``ToolResult``), ``None`` and lists of content blocks pass unchanged: blocks are dicts whose
    ``type`` is one of a chat message's and that hold that type's content. Anything else becomes JSON text.

    Raises:
        TypeError: Something in the result has no JSON form.
    """
    if result is None or (isinstance(result, str) and not isinstance(result, Enum)):
        return result
    if isinstance(result, list) and result and all(_is_block(item) for item in result):
        return result
    try:
        return json.dumps(plain(result), ensure_ascii=False)
    except RecursionError:
        raise TypeError("the result is nested too deeply, or contains itself") from None


def _is_block(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return isinstance(kind, str) and _BLOCKS.get(kind, "") in item


def plain(value: Any) -> Any:
    """The value as what ``json`` can write.

    Raises:
        TypeError: It has no such form.
    """
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple, Set)):
        items = [plain(item) for item in value]
        # The order of a set changes from run to run; a prompt should not.
        return sorted(items, key=repr) if isinstance(value, Set) else items
    return _text(value)


def _text(value: Any) -> str | float:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (PurePath, UUID, Decimal)):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _key(key: Any) -> str:
    key = plain(key)
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key)
    raise TypeError(f"a {type(key).__name__} cannot be a key in JSON")
