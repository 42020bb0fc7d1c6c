"""Schedules in files: our JSON, published TE-CCL results; MSCCL XML is written only."""
