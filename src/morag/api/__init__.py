"""REST without sockets: a request in, a response out. Knows JSON and status codes, not rules."""
