"""Counts what a request costs a server, and compares it with the figures of an earlier commit."""
