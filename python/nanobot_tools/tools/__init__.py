"""The package's own tools; the loader discovers the classes in the modules here."""
