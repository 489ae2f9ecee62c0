"""Two tools as a plugin: one as a class, one as a function."""

from .length import convert_length
from .notes import NotesConfig, NotesTool

__all__ = ["NotesConfig", "NotesTool", "convert_length"]
