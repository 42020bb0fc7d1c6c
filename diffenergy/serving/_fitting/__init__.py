"""Constants of engines from measured servers."""
