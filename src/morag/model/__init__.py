"""The nouns that everybody speaks: keys, content, operations, references. Imports nothing of ours
but errors, and knows nothing of storage or HTTP."""
