"""The templates, a module each."""
