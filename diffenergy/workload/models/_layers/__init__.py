"""Operators of decoders that only serve: attention over caches, state mixers, feed
forward layers and experts in the forms that configs describe."""
