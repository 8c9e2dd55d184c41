"""Benchmarks. `make bench` measures the kernel and prints a table."""
