"""A trace of requests, step by step."""
