"""The storage format: the bytes and ids of refs, rows, objects and contents, which are Nessie's.

Pure functions and structs, without IO.
"""
