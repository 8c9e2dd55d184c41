"""Looking after a whole repository without Spark: checks, and the removal of what is not needed."""
