"""JAX as the commands use it: 64 bit, on the CPU; compilations kept between runs."""

import os
import warnings
from pathlib import Path

from ..compiling import cache_folder


def start_jax(keep_compilations: bool = False):
    """Imports JAX and sets it up; the parser has done its work by then.

    `keep_compilations`: use JAX's own compilation cache (`compiling.call_compiled`
    keeps whole programs instead).
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    if "JAX_PLATFORMS" not in os.environ:
        jax.config.update("jax_platforms", "cpu")
    if keep_compilations:
        enable_compilation_cache()


def enable_compilation_cache() -> Path | None:
    """Keeps what JAX compiles from here on for later processes, by JAX's own cache.

    `estimate`, its gradients and its maps need none: their programs are in the user's
    cache folder anyway. This is for programs of yours, such as a `jax.jit` around it.

    It writes to `diffenergy/jax` in the user's cache folder (`$XDG_CACHE_HOME`, else
    `~/.cache`), as the command line does: every program of this process, yours too,
    found again by what it computes, its options and the versions of JAX. Where JAX has
    a folder already (`JAX_COMPILATION_CACHE_DIR` or `jax_compilation_cache_dir`), that
    one stays as it is. Calling it again changes nothing.

    To undo it in this process, give JAX no folder and let it forget the old one:

        jax.config.update("jax_compilation_cache_dir", None)
        jax.experimental.compilation_cache.compilation_cache.reset_cache()

    The folder holds nothing else and can be deleted at any time. It is trusted: who
    can write to it can run code in your processes.

    Returns:
        The folder that JAX writes to; None if none can be had (nothing changes then).

    Example:

        >>> import diffenergy as de
        >>> folder = de.enable_compilation_cache()  # once, where a notebook begins
    """
    import jax

    chosen = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if chosen:
        return Path(chosen)
    folder = cache_folder()
    if folder is None:
        return None
    warnings.filterwarnings("ignore", message=".*persistent compilation cache.*")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # JAX leaves out small and quick programs by default, which are most of these
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    return folder
