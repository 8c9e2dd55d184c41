"""The rules of commits, history and references. Knows `Persist` and indexes, but neither content,
JSON nor waiting clients."""
