"""CPU kernels and models against other frameworks, in turn, each in a process of its own."""
