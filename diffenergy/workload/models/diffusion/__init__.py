"""Diffusion transformers, which make images and videos step by step."""
