"""The tools of a registry in the shapes of other libraries, and what those hand back.

One module for each; nothing is imported before its module is, and the first three need no library at all:

- :mod:`~nanobot_tools.adapters.openai`: chat completions and responses;
- :mod:`~nanobot_tools.adapters.anthropic`: messages;
- :mod:`~nanobot_tools.adapters.gemini`: ``generateContent``;
- :mod:`~nanobot_tools.adapters.langchain`: tools of ``langchain_core``, in both directions;
- :mod:`~nanobot_tools.adapters.pydantic_ai`: a toolset.

The first three have the same three steps. What a request says of the tools is made of the registry; the calls
in the answer become :class:`~nanobot_tools.ToolCall`, which :meth:`ToolExecutor.run
<nanobot_tools.ToolExecutor.run>` takes; and its outcomes become what the next request says of them.
"""
