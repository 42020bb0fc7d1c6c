"""diffenergy: time, power and energy of GPU kernels as one differentiable function.

    import diffenergy as de

    de.estimate("llama-3.1-8b", "h100-sxm", batch=8)    # by name, as the command
    work = de.load_model("llama-3.1-8b").workload(batch=8)
    de.estimate(work, de.load_gpu("h100-sxm")).energy   # pure, differentiable

Names load on first use, so that importing the package costs nothing; `__init__.pyi`
lists them. What a room lists in its own `__init__` is public too, and nothing else.
"""

from typing import Final

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__: Final = "0.1.0"
