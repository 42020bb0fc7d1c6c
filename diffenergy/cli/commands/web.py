"""`diffenergy web`: a page in the browser, and an HTTP service."""

import importlib.util
import re
import signal
import socket
from pathlib import Path
from typing import Final

from ..run import Outcome
from .web_flags import Flags


def run(flags: Flags) -> Outcome:
    """Serves until a signal ends it."""
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"`diffenergy web` needs {package}; install it by `pip install "
                "'diffenergy[web]'`."
            )
    _check_names(flags)
    import uvicorn

    from ..web.service import Settings, build
    from ..web.workers import Budget

    folder = None if flags.files is None else Path(flags.files).resolve()
    if folder is not None and not (flags.files and folder.is_dir()):
        raise ValueError(f"`files` is '{flags.files}', no folder; give one.")
    listening = _listen(flags)
    shown = f"[{flags.host}]" if ":" in flags.host else flags.host
    settings = Settings(
        hosts=(*Settings.hosts, shown.lower(), *(x.lower() for x in flags.allow_host)),
        origins=flags.cors,
        folder=folder,
        workers=flags.workers,
        queue=flags.queue,
        budget=Budget(flags.timeout, flags.memory * 1e9),
    )
    config = uvicorn.Config(
        build(settings),
        log_level="warning",
        server_header=False,
        headers=_HEADERS,
        timeout_graceful_shutdown=round(flags.timeout) + 5,
        lifespan="on",
    )
    port = listening.getsockname()[1]
    print(f"diffenergy: http://{shown}:{port} (Ctrl-C ends it)", flush=True)
    # uvicorn raises the signals that ended it once more when all is answered
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    uvicorn.Server(config).run(sockets=[listening])
    return Outcome()


_HEADERS: Final = [
    (
        "Content-Security-Policy",
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "frame-ancestors 'none'; base-uri 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
]
"""Headers of every answer."""
_NAMES: Final = {
    "host": (r"[\w.:%-]+", "an address such as 127.0.0.1"),
    "allow_host": (r"[\w.-]+|\[[\da-fA-F:.]+\]", "a name such as energy.example.com"),
    "cors": (r"https?://[\w.\[\]:-]+", "an origin such as https://example.com"),
}
"""What an address, a name and an origin look like, with an example of each."""


def _check_names(flags: Flags):
    """An empty address would be every one of the machine."""
    for field, (pattern, example) in _NAMES.items():
        value = getattr(flags, field)
        for text in [value] if isinstance(value, str) else value:
            if not re.fullmatch(pattern, text):
                raise ValueError(f"`{field}` is '{text}'; give {example}.")


def _listen(flags: Flags) -> socket.socket:
    """The socket that the flags name."""
    family = socket.AF_INET6 if ":" in flags.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((flags.host, flags.port))
        listening.listen(2048)  # who comes before the server has started waits
    except OSError as error:
        name = "port" if error.strerror == "Address already in use" else "host"
        value = getattr(flags, name)
        raise ValueError(
            f"`{name}` is '{value}', where nothing can listen ({error.strerror}); "
            "give another one."
        ) from None
    return listening
