"""HTTP without a socket: a request in, a response out. Knows JSON and status codes, no rules."""
