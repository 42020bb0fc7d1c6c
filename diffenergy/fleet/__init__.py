"""Fleets: which model on which GPUs, how many, at which clock, hour by hour.

    result = diffenergy.fleet.plan("fleet.toml", objective="carbon")
    result.plan, result.bound, result.gap

Names load on first use; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
