"""How answers about collectives read and look."""
