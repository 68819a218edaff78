"""Ranges of indices, boxes of tensors, functions of the sizes."""
