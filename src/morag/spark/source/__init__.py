"""The catalog as a format of Spark: `spark.read.format("morag")`."""
