"""Sweeps past one call: blocks of one program, Parquet parts, resume, clusters.

    result = diffenergy.sweeps.run("spec.toml", "results.parquet")

Names load on first use; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
