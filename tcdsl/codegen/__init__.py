"""Code generation: isl AST and expressions to C and CUDA text."""
