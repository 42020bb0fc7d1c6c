"""Names of the bundled nodes."""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent.parent / "data" / "nodes"


def node_names() -> list[str]:
    """Names of the bundled nodes, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))
