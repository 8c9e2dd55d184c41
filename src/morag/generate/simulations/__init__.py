"""Kinds of load with many simulated users, with the parameters of Nessie's simulations."""
