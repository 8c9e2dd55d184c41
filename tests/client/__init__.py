"""The client: against real servers, and against connections that fail in every way."""
