"""Readers of public data sets, beside those of logs in the package: each file here is
one format, as in `diffenergy.measurements.importers`."""

import functools
from types import ModuleType

from diffenergy.measurements import importers as logs

__all__ = ["importers"]


@functools.cache
def importers() -> dict[str, ModuleType]:
    """All importers, of data sets and of logs, by `NAME`, sorted."""
    sets = logs.importers_in(__name__, __path__)
    return dict(sorted((sets | logs.importers()).items()))
