"""From a demand to a verified schedule with its bound: methods in turn."""
