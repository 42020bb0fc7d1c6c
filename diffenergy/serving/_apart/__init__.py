"""Prefill and decode apart: two pools of servers and the link between them."""
