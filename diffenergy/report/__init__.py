"""What people and programs read: summaries (JSON-like dicts) and tables of them."""
