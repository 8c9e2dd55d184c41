"""What Spark jobs cost."""
