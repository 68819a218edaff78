"""The check of HTML is that of the displays."""

from tests.display.conftest import checked

__all__ = ["checked"]
