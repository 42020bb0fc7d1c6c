"""A clock for every stage of a pipeline, so that no one waits."""
