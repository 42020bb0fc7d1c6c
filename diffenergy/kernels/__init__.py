"""Kernel classes: each file holds the ops it reads and its shape -> `Demand` formula.

A module of this package, or of a folder in it, that defines `OPS` is a kernel class;
adding a file adds it. A class that outgrows a file is a folder of that name. Names of
other rooms' use load on first use; `__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
