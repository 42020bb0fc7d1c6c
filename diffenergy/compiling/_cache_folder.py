"""Folder of compiled programs, kept between runs."""

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Folder for compiled programs in the user's cache; None if it cannot be had."""
    try:
        chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = chosen if chosen.is_absolute() else Path.home() / ".cache"
        folder = base / "diffenergy" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no permission, no home
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None
