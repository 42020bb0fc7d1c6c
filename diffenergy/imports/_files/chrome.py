"""Streaming reader of Chrome traces: events one by one, the rest of the file small."""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

_CHUNK: Final = 1 << 22
"""Bytes read at once (packed ones of a `.gz`)."""
_MOST_VALUE: Final = 1 << 26
"""Characters of one event or of one other value; more is no trace."""
_METADATA: Final = ("deviceProperties", "distributedInfo")
"""Keys read beside the events: never metadata, which holds environments."""
_SPACE: Final = re.compile(r"[\s,]*")


class Events:
    """Reads a file and hands each event to `take`.

    `progress(done, total)` hears of the bytes read.
    """

    def __init__(
        self,
        path: str,
        take: Callable[[Mapping[str, Any]], None],
        progress: Callable[[int, int], None] | None = None,
    ):
        self.path, self.take, self.progress = path, take, progress
        self.decoder = json.JSONDecoder()
        self.buffer, self.place, self.ended = "", 0, False

    def read(self) -> dict[str, Any]:
        """Reads all; returns what stands beside the events, of `_METADATA` alone."""
        raw = Path(self.path).open("rb")
        with raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            self.raw = raw
            self.total = Path(self.path).stat().st_size
            self.stream = gzip.GzipFile(fileobj=raw) if packed else raw
            self.text = codecs.getincrementaldecoder("utf-8")(errors="replace")
            try:
                return self._document()
            except (EOFError, zlib.error, gzip.BadGzipFile):
                raise self._cut() from None
            except (OSError, RecursionError):
                raise ValueError(
                    f"{self.path} cannot be read to its end; copy it again."
                ) from None

    def _document(self) -> dict[str, Any]:
        about: dict[str, Any] = {}
        opening = self._next()
        if opening == "[":
            self.place += 1
            self._array()
            return about
        self.place += 1  # "{"
        while self._next() != "}":
            key = self._value()
            if self._next() != ":":
                raise self._broken()
            self.place += 1
            if key == "traceEvents":
                if self._next() != "[":
                    raise ValueError(
                        f"{self.path}: `traceEvents` is no list; give a trace of "
                        "PyTorch's profiler or another Chrome trace."
                    )
                self.place += 1
                self._array()
            else:
                self._next()
                value = self._value()
                if key in _METADATA:
                    about[str(key)] = value
        return about

    def _array(self):
        """Events up to the closing bracket."""
        take = self.take
        while self._next() != "]":
            event = self._value()
            if isinstance(event, dict):
                take(cast(Mapping[str, Any], event))
        self.place += 1

    def _value(self) -> Any:
        """The value that begins here."""
        while True:
            try:
                value, end = self.decoder.raw_decode(self.buffer, self.place)
            except json.JSONDecodeError as error:
                if not self._more():
                    raise self._ended_at(error) from None
                continue
            if end == len(self.buffer) and self._more():
                continue  # a number may go on
            self.place = end
            return value

    def _next(self) -> str:
        """The next character that means something."""
        while True:
            blank = _SPACE.match(self.buffer, self.place)
            self.place = blank.end() if blank else self.place
            if self.place < len(self.buffer):
                return self.buffer[self.place]
            if not self._more():
                raise self._cut()

    def _more(self) -> bool:
        """Reads on; whether there was more."""
        if self.ended:
            return False
        if len(self.buffer) - self.place > _MOST_VALUE:
            raise self._broken()
        chunk = self.stream.read(_CHUNK)
        self.ended = not chunk
        text = self.text.decode(chunk, final=self.ended)
        self.buffer = self.buffer[self.place :] + text
        self.place = 0
        if self.progress:
            self.progress(self.raw.tell(), self.total)
        return bool(text)

    def _ended_at(self, error: json.JSONDecodeError) -> ValueError:
        """What is wrong with a file whose last value cannot be read."""
        rest = error.doc[error.pos :].strip()
        begun = any(word.startswith(rest) for word in ("true", "false", "null", "-"))
        within = "Unterminated" in error.msg or begun
        return self._cut() if within else self._broken()

    def _cut(self) -> ValueError:
        return ValueError(
            f"{self.path} is cut off: it ends inside the trace; copy or record it "
            "again."
        )

    def _broken(self) -> ValueError:
        return ValueError(
            f"{self.path} is no whole JSON near character {self.place} of what is "
            "being read; export the trace again."
        )
