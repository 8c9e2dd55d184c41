"""Sorted maps from store keys to entries. Knows segments and stripes, but not the rules of commits,
which are in `logic`."""
