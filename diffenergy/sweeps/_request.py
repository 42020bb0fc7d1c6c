"""`RunRequest`: where a sweep runs, and what of it."""

from collections.abc import Callable
from typing import Annotated

from ..requests import Flag, Note, Request

Progress = Callable[[int, int], None]


class RunRequest(Request):
    """How the blocks of a sweep are computed."""

    ray: Annotated[
        str | None,
        Flag("Ray cluster to work on, or N workers here [none].", "ADDRESS|local[:N]"),
    ] = None
    resume: Annotated[bool, "Compute only what an earlier run did not."] = False
    progress: Annotated[
        Progress | None, Note("Called with rows done and their number.")
    ] = None
