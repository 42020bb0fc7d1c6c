"""diffenergy: time, power and energy of GPU kernels as one differentiable function.

    import diffenergy as de

    de.estimate("llama-3.1-8b", "h100-sxm", batch=8)    # by name, as the command
    work = de.load_model("llama-3.1-8b").workload(batch=8)
    de.estimate(work, de.load_gpu("h100-sxm")).energy   # pure, differentiable

Names load on first use, so that importing the package costs nothing; `__init__.pyi`
lists them. What a room lists in its own `__init__` is public too, and nothing else.
"""

__version__ = "0.2.0"


def _attach() -> dict:
    """Lets `lazy_loader` take over; the command line begins without it."""
    import lazy_loader

    get, listed, public = lazy_loader.attach_stub(__name__, __file__)
    lazy = {"__getattr__": get, "__dir__": listed, "__all__": public}
    globals().update(lazy)
    return lazy


def __getattr__(name: str):
    """Loads names on first use."""
    lazy = _attach()
    return lazy[name] if name in lazy else lazy["__getattr__"](name)


def __dir__() -> list[str]:
    """The public names."""
    return _attach()["__dir__"]()
