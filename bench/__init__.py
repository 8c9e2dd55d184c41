"""What the kernel costs, measured; `make bench` prints the table."""
