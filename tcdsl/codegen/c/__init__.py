"""C: expressions, statements, loops with threads and vectors; most of it serves CUDA too."""
