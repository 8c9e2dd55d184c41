"""The checksum of RocksDB's logs, whose polynomial the standard library does not have."""

from __future__ import annotations

from struct import iter_unpack
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
_ALL: Final = 0xFFFFFFFF
_MASK_DELTA: Final = 0xA282EAD8


def masked_crc32c(data: bytes) -> int:
    """The stored form: rotated and shifted, so that the checksum of a checksum is not 0.

    It computes some MB/s, which is enough: only a log that RocksDB refused is checked with it.
    """
    crc = _crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ALL


def _tables() -> list[list[int]]:
    """Table `k` holds what a byte contributes to the checksum after `k` more bytes."""
    first = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        first.append(crc)
    tables = [first]
    for _ in range(7):
        tables.append([crc >> 8 ^ first[crc & 255] for crc in tables[-1]])
    return tables


_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7 = _tables()


def _crc32c(data: bytes) -> int:
    crc = _ALL
    even = len(data) & ~7
    for low, b4, b5, b6, b7 in iter_unpack("<IBBBB", data[:even]):
        crc ^= low
        crc = (
            _T7[crc & 255]
            ^ _T6[crc >> 8 & 255]
            ^ _T5[crc >> 16 & 255]
            ^ _T4[crc >> 24]
            ^ _T3[b4]
            ^ _T2[b5]
            ^ _T1[b6]
            ^ _T0[b7]
        )
    for byte in data[even:]:
        crc = crc >> 8 ^ _T0[(crc ^ byte) & 255]
    return crc ^ _ALL
