"""The race: the original server and Morag, side by side, under the same load."""
