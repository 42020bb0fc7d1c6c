"""Frequency schedules: clocks for every kernel, phase or iteration.

    result = diffenergy.dvfs.plan("gpt2", "a100-sxm-80gb", batch=8, max_slowdown=2)
    result.to_script("plan.py")

Names load on first use; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
