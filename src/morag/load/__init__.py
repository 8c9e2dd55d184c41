"""Load on a running server, Morag or Nessie: workloads, simulated clients, and their driver.

It knows the REST API as text on sockets, and nothing of how a catalog works or is stored.
"""
