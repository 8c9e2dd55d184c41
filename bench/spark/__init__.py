"""Benchmarks of Spark jobs."""
