"""The edge: sockets, time-outs, threads, start and stop. Knows bytes and clients, no catalog."""
