"""Passes over the nodes of a kernel (``ast/nodes.py``), each from nodes to nodes or to a reason."""
