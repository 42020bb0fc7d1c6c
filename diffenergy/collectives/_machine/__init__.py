"""Machines: GPUs, switches and NICs joined by links; their files; ways through them."""
