"""Frames on a socket: a length, then that many bytes.

Two processes of ours speak it; it knows nothing of grammars.
"""

import socket
import struct

READY = b"ready"
OK, REFUSED = b"+", b"-"
"""The first byte of an answer; the rest is a compiled grammar, or why there is none."""

_LENGTH = struct.Struct(">Q")


def send_frame(channel: socket.socket, body: bytes) -> None:
    channel.sendall(_LENGTH.pack(len(body)) + body)


def receive_frame(channel: socket.socket, max_bytes: int) -> bytes | None:
    """The next frame; None when the other side closed before it was whole, or is too long."""
    header = _receive(channel, _LENGTH.size)
    if header is None:
        return None
    (length,) = _LENGTH.unpack(header)
    return _receive(channel, length) if length <= max_bytes else None


def _receive(channel: socket.socket, length: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < length:
        part = channel.recv(min(length - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)
