"""JAX as the commands use it: 64 bit, on the CPU, compilations kept between runs."""

import os
import warnings
from pathlib import Path


def start_jax(keep_compilations: bool = False):
    """Imports JAX and sets it up; the parser has done its work by then.

    `keep_compilations`: use JAX's own compilation cache (`programs` keeps whole
    programs instead).
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # stderr is for our own lines
    import jax

    jax.config.update("jax_enable_x64", True)
    if "JAX_PLATFORMS" not in os.environ:
        jax.config.update("jax_platforms", "cpu")
    folder = cache_folder() if keep_compilations else None
    if folder is None:
        return
    warnings.filterwarnings("ignore", message=".*persistent compilation cache.*")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def cache_folder() -> Path | None:
    """Folder for compiled programs in the user's cache; None if it cannot be had."""
    try:
        given = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = given if given.is_absolute() else Path.home() / ".cache"
        folder = base / "diffenergy" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no permission, no home
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None
