"""The kernel's verbs: what a user can ask of a repository, told in content keys and content."""
