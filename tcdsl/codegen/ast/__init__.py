"""The small tree of C and CUDA that printers build, passes read and change, and ``text`` prints."""
