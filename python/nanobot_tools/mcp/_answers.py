"""The results of the requests that servers make, out of what callbacks return.

Beside dicts, models of the Python SDK (anything with pydantic's ``model_dump``) are taken.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .._native import CompiledSchema

_ACTIONS = ("accept", "decline", "cancel")


def sampling_result(answer: Any) -> Mapping[str, Any]:
    """The result of ``sampling/createMessage``.

    Raises:
        TypeError: The callback returned no mapping.
    """
    result = _plain(answer)
    if not isinstance(result, Mapping):
        raise TypeError(f"the sampling callback must return a dict, not {type(answer).__name__}")
    return result


def elicitation_result(params: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """The result of ``elicitation/create``; the content of an accepted form is complete and valid.

    Raises:
        TypeError: The callback returned neither a dict nor a string.
        ValueError: The action is unknown, or the content does not fit the form.
    """
    answer = {"action": answer} if isinstance(answer, str) else _plain(answer)
    if not isinstance(answer, Mapping):
        raise TypeError(
            f"the elicitation callback must return a dict or a string, not {type(answer).__name__}"
        )
    action = answer.get("action")
    if action not in _ACTIONS:
        raise ValueError(f"the action must be one of {', '.join(_ACTIONS)}, not {action!r}")
    result: dict[str, Any] = {"action": action}
    if action == "accept" and params.get("mode", "form") == "form":
        result["content"] = fill_form(params.get("requestedSchema"), answer.get("content"))
    return result


def fill_form(schema: Any, content: Any) -> dict[str, Any]:
    """What was entered into a form, cast and validated, with the schema's defaults for what was not.

    Raises:
        TypeError: The content is no mapping.
        ValueError: The content does not fit the form.
    """
    if content is None:
        content = {}
    if not isinstance(content, Mapping):
        raise TypeError(f"the content of a form must be a dict, not {type(content).__name__}")
    # In a form, a field that holds nothing was not filled in.
    filled = {name: value for name, value in content.items() if value is not None}
    if not isinstance(schema, Mapping):
        return filled
    fields = schema.get("properties")
    for name, field in fields.items() if isinstance(fields, Mapping) else ():
        if name not in filled and isinstance(field, Mapping) and field.get("default") is not None:
            filled[name] = copy.deepcopy(field["default"])
    compiled = CompiledSchema(dict(schema))
    cast: dict[str, Any] = compiled.cast(filled)
    if failures := compiled.validate(cast):
        raise ValueError(f"the content does not fit the form: {'; '.join(failures)}")
    return cast


def roots_result(roots: Any) -> dict[str, Any]:
    """The result of ``roots/list``.

    Raises:
        TypeError: Something in the list is no root.
    """
    if isinstance(roots, (str, os.PathLike, Mapping)) or not isinstance(roots, Iterable):
        raise TypeError(f"roots must be a list, not {type(roots).__name__}")
    return {"roots": [_root(root) for root in roots]}


def _root(root: Any) -> dict[str, Any]:
    root = _plain(root)
    if isinstance(root, Mapping):
        if not isinstance(root.get("uri"), str):
            raise TypeError("a root needs a 'uri'")
        return dict(root)
    if isinstance(root, str) and "://" in root:
        name = unquote(urlsplit(root).path).rstrip("/").rpartition("/")[2]
        return {"uri": root, "name": name} if name else {"uri": root}
    if isinstance(root, (str, os.PathLike)):
        # Made absolute without following links: the server is told what the host calls the folder.
        path = Path(os.path.abspath(os.path.expanduser(root)))
        return {"uri": path.as_uri(), "name": path.name or str(path)}
    raise TypeError(f"a root must be a path or a dict, not {type(root).__name__}")


def _plain(answer: Any) -> Any:
    """A model as the dict that goes over the wire; anything else as it is."""
    dump = getattr(answer, "model_dump", None)
    return answer if dump is None else dump(mode="json", by_alias=True, exclude_none=True)
