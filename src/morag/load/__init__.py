"""Load on a running server, Morag or Nessie: rows of requests, simulated clients, and a driver.

It knows the REST API as text on sockets, and nothing of how a catalog works or is stored.
"""
