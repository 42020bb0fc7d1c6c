"""The few lines of the protobuf wire format that Chakra traces need: fields of a
message as (number, value)."""

import struct
from collections.abc import Iterator
from typing import Any


def varint(data: bytes, place: int) -> tuple[int, int]:
    """(number, place behind it). Raises `EOFError` where the data end inside it."""
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise EOFError
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def messages(data: bytes) -> Iterator[bytes]:
    """Messages that are each preceded by their length."""
    place = 0
    while place < len(data):
        length, place = varint(data, place)
        if place + length > len(data):
            raise EOFError
        yield data[place : place + length]
        place += length


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Fields of a message: whole numbers, floats, or bytes (texts, messages)."""
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = varint(message, place)
        elif kind == 2:
            length, place = varint(message, place)
            value, place = message[place : place + length], place + length
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            if place + size > len(message):
                raise EOFError
            value = struct.unpack(
                "<d" if kind == 1 else "<f", message[place : place + size]
            )[0]
            place += size
        else:
            raise EOFError
        yield key >> 3, value


def packed(value: Any) -> list[int]:
    """Whole numbers of a repeated field, packed or single."""
    if isinstance(value, int):
        return [value]
    found, place = [], 0
    while place < len(value):
        number, place = varint(value, place)
        found.append(number)
    return found
