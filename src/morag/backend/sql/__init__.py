"""Statements, tables and connections that the SQL engines share."""
