"""Kind of a file by its content."""

import contextlib
import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Final

from ._files.chakra import varint

_HEAD: Final = 1 << 16
"""Bytes looked at."""
_READABLE: Final = (
    "a kernel listing (.jsonl), a model's config.json, a PyTorch (Kineto) or Chrome "
    "trace, an ONNX graph, an Nsight Systems SQLite export or summary (CSV), an Nsight "
    "Compute CSV or a Chakra execution trace"
)
_NSYS_COLUMNS: Final = re.compile(
    r'"?Time \(%\)"?,"?Total Time \(ns\)"?.*Name|Start \(ns\),Duration \(ns\)'
)
_NCU_COLUMNS: Final = re.compile(r'"ID",.*"Kernel Name"')
_TRACE_KEYS: Final = re.compile(
    r'"(traceEvents|deviceProperties|schemaVersion|displayTimeUnit|distributedInfo)"'
)


def kind_of(path: str) -> str | None:
    """Kind of a file: one that is imported, "listing", "config", "measurements"
    (another CSV); None where it is none of them.

    Raises `ValueError` for a file that cannot be read, is empty, or cut off.
    """
    head = _head(path)
    if not head.strip():
        raise ValueError(f"{path} is empty; give {_READABLE}.")
    if head.startswith(b"SQLite format 3\0"):
        return "nsys_sqlite"
    text = head.decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if text.startswith("{"):
        return _object(text)
    if text.startswith("["):
        return "kineto" if '"ph"' in text or text[1:].lstrip()[:1] == "{" else None
    if _NCU_COLUMNS.search(text):
        return "ncu"
    if _NSYS_COLUMNS.search(text):
        return "nsys_csv"
    if _is_chakra(head):
        return "chakra"
    if _is_onnx(head):
        return "onnx"
    first = text.splitlines()[0] if text else ""
    if "\0" not in text and "\ufffd" not in text and "," in first:
        return "measurements"
    return None


def _object(text: str) -> str | None:
    """Kind of a file that begins with a JSON object."""
    if _TRACE_KEYS.search(text[:2048]) or '"traceEvents"' in text:
        return "kineto"
    line = text.split("\n", 1)[0]
    if '"kernels"' in line and '"op"' in line:
        return "listing"
    if '"model_type"' in text or '"architectures"' in text:
        return "config"
    try:
        whole = json.loads(text)
    except ValueError:
        return None
    return "listing" if isinstance(whole, dict) and "kernels" in whole else None


def not_readable(path: str) -> ValueError:
    """Error for a file of no kind that is read."""
    return ValueError(
        f"{path} is none of the files that can be read: give {_READABLE}."
    )


def _head(path: str) -> bytes:
    """The first bytes, unpacked."""
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; give a file in it: {_READABLE}.")
    try:
        with Path(path).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            stream = gzip.GzipFile(fileobj=file) if packed else file
            return stream.read(_HEAD)
    except FileNotFoundError:
        raise ValueError(f"There is no file '{path}'; give {_READABLE}.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ValueError(
            f"{path} is cut off: it ends inside its packed data; copy it again."
        ) from None
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read ({error.strerror}); check its permissions."
        ) from None


def _is_chakra(head: bytes) -> bool:
    """Whether the file begins with the message `GlobalMetadata` behind its length (a
    version, field 1, or attributes, field 2), then the first node (its number, field 1,
    or name)."""
    with contextlib.suppress(EOFError, IndexError):
        length, place = varint(head, 0)
        if length == 0 or length > 1 << 14 or head[place] not in (0x0A, 0x12):
            return False
        size, place = varint(head, place + length)
        return size > 0 and head[place] in (0x08, 0x12)
    return False


def _is_onnx(head: bytes) -> bool:
    """Whether the file begins as `ModelProto`: with its version (field 1) and names its
    producer or graph next."""
    return head[:1] == b"\x08" and len(head) > 3 and head[2] in (0x12, 0x1A, 0x3A, 0x42)
