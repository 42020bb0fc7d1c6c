"""Charts as data, and two drawers of them: SVG for pages, matplotlib for files.

A view builds a `Chart`; `to_svg` and `to_figure` draw it. Names load on first use;
`__init__.pyi` lists them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
