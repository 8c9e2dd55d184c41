"""Tests of the generator: contents, simulations and tools, on real servers."""
