"""The command `morag`: each noun is one file, and `main.py` lists them."""
