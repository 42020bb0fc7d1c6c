"""Reading of what quantised checkpoints say of their modules, method by method."""
