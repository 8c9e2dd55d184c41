"""Sorted maps from store keys to operations. Knows segments and stripes, but not what a commit may
do: that is one floor up."""
