"""The HTTP server: sockets, time-outs, threads, start and stop. Does not know the catalog."""
