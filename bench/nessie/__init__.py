"""Compares Nessie and Morag under the same load."""
