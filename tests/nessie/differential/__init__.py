"""Nessie and Morag side by side: the same random requests, and the same answers."""
