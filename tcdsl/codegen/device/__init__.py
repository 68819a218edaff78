"""Device libraries: what generated code calls, hand-written and tested alone."""
