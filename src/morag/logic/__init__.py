"""The rules: what a commit, a history and a reference are. Knows Persist and indexes, and nothing
of content, JSON or waiting clients."""
