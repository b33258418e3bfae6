"""Zip archives, read within limits, and written with some members replaced.

The compressed bytes of unchanged members are copied. Nested archives are treated as opaque bytes and never
opened, which rules out nested zip bombs. Nothing is unpacked to disk.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from cotext.runtime import CotextError, shown

MAX_MEMBERS: Final = 20_000
MAX_MEMBER_BYTES: Final = 256 << 20  # limit of a member, unpacked
MAX_TOTAL_BYTES: Final = 4 << 30  # limit of all members, unpacked, by their declared sizes
# Markup rarely compresses by more than 100:1; the limit of DEFLATE is 1032:1. Small members are exempt.
MAX_RATIO: Final = 300
RATIO_FROM_BYTES: Final = 8 << 20

_LOCAL: Final = struct.Struct("<4s2B4HL2L2H")
_CENTRAL: Final = struct.Struct("<4s4B4HL2L5H2L")
_END: Final = struct.Struct("<4s4H2LH")
_ZIP64: Final = 1  # id of the extra field with 64-bit sizes
_DESCRIPTOR: Final = 0x08  # flag: sizes are after the data
_ENCRYPTED: Final = 0x01
_UTF8: Final = 0x800


class Archive:
    """A zip archive in memory.

    Raises:
        CotextError: the archive is damaged, encrypted, beyond a limit, or has unsafe or duplicate names.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._content = content
        self._name = name
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
            self._members = {info.filename: info for info in self._zip.infolist()}
        except (zipfile.BadZipFile, ValueError, OverflowError, struct.error, NotImplementedError) as error:
            kind = f"a damaged archive ({error})" if b"PK" in content else "not a zip archive"
            raise self._refused(f"{kind}; open the file in its program and save it again") from None
        self._check_directory()
        self._check_sizes()

    @property
    def names(self) -> list[str]:
        """Names of the members, in the order of the directory."""
        return list(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str) -> bytes:
        """Return the content of a member.

        Raises:
            CotextError: the member is missing, damaged or beyond a limit.
        """
        info = self._members.get(name)
        if info is None:
            raise self._refused(f"has no part {shown(name)}; open the file and save it again")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._refused(
                f"part {shown(name)} has an unsupported compression; open the file and save it again"
            )
        if info.file_size > MAX_MEMBER_BYTES:
            raise self._refused(
                f"part {shown(name)} has {info.file_size:,} bytes unpacked, beyond the limit of"
                f" {MAX_MEMBER_BYTES:,}; split the document"
            )
        try:
            with self._zip.open(info) as member:
                content = member.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as error:
            raise self._refused(f"part {shown(name)} is damaged ({error})") from None
        if len(content) != info.file_size:
            raise self._refused(f"part {shown(name)} is cut off")
        return content

    def written(self, changed: Mapping[str, bytes]) -> bytes:
        """Return the archive with the contents of some members replaced.

        Order, compression methods, dates, attributes and comments are kept. Without a change, the bytes are
        those of the original file.
        """
        changed = {name: content for name, content in changed.items() if self.read(name) != content}
        if not changed:
            return self._content
        out = bytearray()
        directory = bytearray()
        for name, info in self._members.items():
            packed = self._packed(info) if name not in changed else _pack(changed[name], info)
            size, crc = info.file_size, info.CRC
            if name in changed:
                size, crc = len(changed[name]), zlib.crc32(changed[name])
            offset = len(out)
            out += self._local_header(info, crc, len(packed), size) + packed
            directory += self._directory_entry(info, crc, len(packed), size, offset)
        count, comment = len(self._members), self._zip.comment
        end = _END.pack(b"PK\5\6", 0, 0, count, count, len(directory), len(out), len(comment))
        return bytes(out + directory + end + comment)

    def _refused(self, reason: str) -> CotextError:
        return CotextError(f"{self._name}: {reason}")

    def _check_directory(self) -> None:
        infos = self._zip.infolist()
        if len(infos) != len(self._members):
            raise self._refused("two parts have the same name; open the file and save it again")
        if len(infos) > MAX_MEMBERS:
            raise self._refused(f"{len(infos):,} parts, beyond the limit of {MAX_MEMBERS:,}")
        for info in infos:
            path = info.orig_filename.replace("\\", "/")
            if path.startswith("/") or ".." in path.split("/") or ":" in path or "\0" in path:
                raise self._refused(f"part {shown(info.orig_filename)} has a name that leaves the archive")
            if info.flag_bits & _ENCRYPTED:
                raise self._refused("encrypted; save the file without a password")

    def _check_sizes(self) -> None:
        infos = sorted(self._zip.infolist(), key=lambda info: info.header_offset)
        total = sum(info.file_size for info in infos)
        if total > MAX_TOTAL_BYTES:
            raise self._refused(f"{total:,} bytes unpacked, beyond the limit of {MAX_TOTAL_BYTES:,}")
        for info in infos:
            if info.file_size > max(RATIO_FROM_BYTES, MAX_RATIO * info.compress_size):
                raise self._refused(
                    f"part {shown(info.filename)} unpacks to more than {MAX_RATIO} times its size; such"
                    " archives can exhaust memory"
                )
            if info.header_offset + _LOCAL.size + info.compress_size > len(self._content):
                raise self._refused(f"part {shown(info.filename)} is cut off")
        if infos and infos[0].header_offset:
            raise self._refused("does not begin with its first part; open the file and save it again")
        for info, following in pairwise(infos):
            if self._data_start(info) + info.compress_size > following.header_offset:
                raise self._refused(f"parts {shown(info.filename)} and {shown(following.filename)} overlap")

    def _data_start(self, info: zipfile.ZipInfo) -> int:
        fields = self._local_fields(info)
        return info.header_offset + _LOCAL.size + fields[-2] + fields[-1]

    def _local_fields(self, info: zipfile.ZipInfo) -> tuple[int, ...]:
        magic, *fields = _LOCAL.unpack_from(self._content, info.header_offset)
        if magic != b"PK\3\4" or fields[3] != info.compress_type:
            raise self._refused(f"part {shown(info.filename)} is not at the declared position")
        return tuple(fields)

    def _packed(self, info: zipfile.ZipInfo) -> bytes:
        start = self._data_start(info)
        return self._content[start : start + info.compress_size]

    def _local_header(self, info: zipfile.ZipInfo, crc: int, packed: int, size: int) -> bytes:
        version, system, _, method, time, date, _, _, _, name_length, extra_length = self._local_fields(info)
        start = info.header_offset + _LOCAL.size + name_length
        extra = _small(self._content[start : start + extra_length])
        name = _raw_name(info)
        flags = info.flag_bits & ~_DESCRIPTOR
        head = (b"PK\3\4", version, system, flags, method, time, date, crc, packed, size)
        return _LOCAL.pack(*head, len(name), len(extra)) + name + extra

    def _directory_entry(self, info: zipfile.ZipInfo, crc: int, packed: int, size: int, offset: int) -> bytes:
        _, _, _, method, time, date, *_ = self._local_fields(info)
        name, extra = _raw_name(info), _small(info.extra)
        head = (b"PK\1\2", info.create_version, info.create_system, info.extract_version, info.reserved)
        middle = (info.flag_bits & ~_DESCRIPTOR, method, time, date, crc, packed, size)
        lengths = (len(name), len(extra), len(info.comment), 0)
        end = (info.internal_attr, info.external_attr, offset)
        return _CENTRAL.pack(*head, *middle, *lengths, *end) + name + extra + info.comment


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def _pack(content: bytes, info: zipfile.ZipInfo) -> bytes:
    if info.compress_type == zipfile.ZIP_STORED:
        return content
    packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


def _small(extra: bytes) -> bytes:
    """Return the extra fields of a member without 64-bit sizes, which the header then contains."""
    kept, at = b"", 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind != _ZIP64:
            kept += extra[at : at + 4 + length]
        at += 4 + length
    return kept
