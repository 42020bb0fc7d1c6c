"""Times that no schedule can beat, and which links they rest on."""
