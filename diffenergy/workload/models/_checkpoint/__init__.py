"""What a checkpoint says: its config, its number formats, its quantised layers."""
