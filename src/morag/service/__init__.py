"""What the REST APIs mean by their calls, in branches and content. Knows no JSON and no HTTP."""
