"""The search for a deployment: GPUs, types, sharing, replicas, batch limit, clock."""
