"""Flags of `diffenergy web`."""

from typing import Annotated

from msgspec import Meta

from ... import reading
from ...requests import Flag, Request, Text, Whole

_Port = Annotated[
    int,
    Meta(ge=0, le=65535, description="allowed is a whole number from 0 to 65535"),
    Text("PORT", reading.seed),
]
_Above = Annotated[float, Meta(gt=0, description="allowed is a number above 0")]


_Workers = Annotated[
    int,
    Meta(ge=1, le=256, description="allowed is a whole number from 1 to 256"),
    Text("N", reading.seed),
]


class Flags(Request):
    """Open a page in the browser, and an HTTP service, for the commands.

    The page has a form for each command. The service takes the same fields as JSON
    under /api/v1/ and is described in /openapi.json. It listens on this machine alone,
    and reads or writes no file of it unless --files names a folder. Ctrl-C and SIGTERM
    end it after the requests that run. Needs the extra `web`.

    \b
    Examples:
      diffenergy web
      diffenergy web --port 8080 --workers 4 --files studies
    """

    port: Annotated[_Port, "Port; 0 takes a free one"] = 8000
    host: Annotated[str, Flag("Address to listen on", "ADDRESS")] = "127.0.0.1"
    allow_host: Annotated[
        tuple[str, ...],
        Flag("Name under which clients may reach it; repeatable.", "NAME", many=True),
    ] = ()
    cors: Annotated[
        tuple[str, ...],
        Flag("Origin of pages that may use it; repeatable.", "ORIGIN", many=True),
    ] = ()
    files: Annotated[
        str | None, Flag("Folder whose files may be read and written [none].", "DIR")
    ] = None
    workers: Annotated[_Workers, "Processes that answer"] = 2
    queue: Annotated[Whole, "Requests that may wait; more are refused"] = 100
    timeout: Annotated[
        _Above,
        Flag("Time limit of a request, such as 5min [120s].", "TIME", reading.seconds),
    ] = 120.0
    memory: Annotated[Whole, Flag("Memory limit of a process in GB", "GB")] = 4
