"""Outside the compiler: the caller's arrays, the cache, C compilers, launches, and clocks."""
