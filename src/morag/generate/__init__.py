"""Generates contents and load: histories of random contents, and simulations of many users.

It knows the nouns of a catalog and its client, and nothing of how anything is stored. Generated
contents point to files that do not exist, so they belong into test catalogs.
"""
