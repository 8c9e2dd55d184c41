"""The server as a process, under many clients at once and under bytes that are no requests."""
