"""CUDA: kernels as nodes, and how each is launched; ``printer`` lists the modules."""
