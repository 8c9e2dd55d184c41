"""A repository's operations, in content keys and content: commit, merge, transplant, reads."""
