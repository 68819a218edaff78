"""What notebooks and reports show: plain HTML and SVG, one module a thing.

html     elements, escaping, the root of a display
style    the one style sheet, for light and dark themes
svg      drawings

A display is text: it needs neither scripts nor the network, and none of IPython.
"""
