"""Export and import of whole repositories, in Nessie's format, without Spark."""
