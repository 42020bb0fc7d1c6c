"""Charts of results as data: what each shows, which `charts` draws."""
