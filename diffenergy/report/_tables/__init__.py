"""Tables and lines of results, for terminals, notebooks and pages."""
