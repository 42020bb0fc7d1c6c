"""From what is asked by name to a checked `Task`, ready to run."""
