"""Ways to damage files: their bytes, and what they say with all checksums right again."""

import contextlib
import gzip
import io
import json
import random
import struct
import zipfile
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
import torch

from lifelong.persistence import checkpoint as journal
from lifelong.persistence.checkpoint import FILE
from lifelong.persistence.files import TensorFileError, digest, packed, unpacked
from lifelong.persistence.manifest import MANIFEST

Files: TypeAlias = dict[str, bytes]
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 255, 2**31, 2**63, 2**64, 10**30, 10**400, -(2**62), -0.0, 1e-320,
    1e39, 1e308, "", "x" * 999, "../../../etc/passwd", "/dev/zero", "\x00", "\x1b]0;x\x07",
    "\ud800", "head", [], {}, [[]], {"": {}}, [0] * 500,
)  # fmt: skip


# ---- mutations of bytes


def mutated(files: Files, draw: random.Random) -> Files:
    """One file changed, or two exchanged, or one left out."""
    name = draw.choice(sorted(files))
    way = draw.choice([*_BYTES] * 3 + [_left_out, _exchanged, _emptied])
    if way is _left_out:
        return {other: content for other, content in files.items() if other != name}
    if way is _exchanged:
        return {**files, name: files[draw.choice(sorted(files))]}
    return {**files, name: way(bytearray(files[name]), draw)}


def _bytes_mutated(content: bytearray, draw: random.Random) -> bytes:
    return draw.choice(_BYTES)(content, draw)


def _left_out() -> None: ...
def _exchanged() -> None: ...
def _emptied(_: bytearray, __: random.Random) -> bytes:
    return b""


def _flipped(content: bytearray, draw: random.Random) -> bytes:
    for _ in range(draw.choice([1, 1, 2, 8])):
        if content:
            content[_place(content, draw)] ^= 1 << draw.randrange(8)
    return bytes(content)


def _some_flipped(content: bytes, draw: random.Random) -> bytes:
    return _flipped(bytearray(content), draw)


def _overwritten(content: bytearray, draw: random.Random) -> bytes:
    start = _place(content, draw)
    length = draw.choice([1, 4, 8, 100])
    fill = draw.choice([b"\x00", b"\xff", draw.randbytes(1)]) * length
    content[start : start + length] = fill
    return bytes(content)


def _cut(content: bytearray, draw: random.Random) -> bytes:
    return bytes(content[: _place(content, draw)])


def _without(content: bytearray, draw: random.Random) -> bytes:
    start = _place(content, draw)
    del content[start : start + draw.choice([1, 8, 64, 1000])]
    return bytes(content)


def _inserted(content: bytearray, draw: random.Random) -> bytes:
    start = _place(content, draw)
    content[start:start] = draw.randbytes(draw.choice([1, 8, 64, 1000]))
    return bytes(content)


def _doubled(content: bytearray, draw: random.Random) -> bytes:
    start = _place(content, draw)
    content[start:start] = content[start : start + draw.choice([1, 8, 64, 1000])]
    return bytes(content)


def _number_changed(content: bytearray, draw: random.Random) -> bytes:
    """A length or an offset, as it may stand anywhere."""
    form = draw.choice(["<Q", "<I", ">I", "<H"])
    size = struct.calcsize(form)
    if len(content) > size:
        start = min(_place(content, draw), len(content) - size)
        most = 256**size - 1
        struct.pack_into(form, content, start, draw.choice([0, 1, most, most // 2, 1 << 12]))
    return bytes(content)


def _digit_changed(content: bytearray, draw: random.Random) -> bytes:
    places = [n for n, byte in enumerate(content) if 48 <= byte < 58]
    if places:
        content[draw.choice(places)] = draw.choice(b"0123456789-.eE \n,")
    return bytes(content)


def _extended(content: bytearray, draw: random.Random) -> bytes:
    return bytes(content) + draw.randbytes(draw.choice([1, 8, 5000]))


_BYTES = (
    _flipped, _overwritten, _cut, _without, _inserted, _doubled, _number_changed, _digit_changed,
    _extended,
)  # fmt: skip


def _place(content: bytearray, draw: random.Random) -> int:
    """Anywhere, and often near the start, where headers are."""
    most = draw.choice([len(content), min(len(content), 64), min(len(content), 512)])
    return draw.randrange(most) if most else 0


# ---- mutations of JSON, with all checksums right again


def json_mutated(value: Any, draw: random.Random) -> Any:
    """One place in a tree of lists and objects changed."""
    places = list(_places(value)) if isinstance(value, dict | list) else []
    if not places:
        return draw.choice(HOSTILE)
    # First a branch and then a place in it, or nearly all would fall into the longest list.
    branch = value[draw.choice(sorted(value))] if isinstance(value, dict) else value
    within = list(_places(branch)) if isinstance(branch, dict | list) else []
    holder, key = draw.choice(within if within and draw.random() < 0.8 else places)
    way = draw.randrange(8)
    if way == 7:
        depth = draw.choice([1, 3, 200])
        holder[key] = json.loads("[" * depth + json.dumps(holder[key]) + "]" * depth)
    elif way == 0:
        del holder[key]
    elif way == 1:
        other, at = draw.choice(places)
        holder[key] = other[at]
    elif way == 2 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif way == 3 and isinstance(holder, dict):
        holder[draw.choice(["", "extra", "head", *map(str, holder)])] = holder.pop(key)
    elif way == 4 and isinstance(holder[key], int | float):
        holder[key] = draw.choice([holder[key] + 1, holder[key] - 1, -holder[key], holder[key] * 2])
    else:
        alike = [other for other in HOSTILE if type(other) is type(holder[key])]
        holder[key] = draw.choice(alike if way > 4 and alike else HOSTILE)
    try:
        return json.loads(json.dumps(value))  # a tree again, where a part was put into itself
    except (ValueError, RecursionError):
        return draw.choice(HOSTILE)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def reseal_model(files: Files, draw: random.Random) -> Files:
    """A model that somebody changed on purpose: nothing tells it from a good one but its sense."""
    manifest = json.loads(files[MANIFEST])
    shared = next(content for name, content in files.items() if name.startswith("tensors-"))
    chain = _chain(files, manifest)
    part = draw.randrange(4) if chain else draw.randrange(2)
    if part == 0:
        shared = _tensors_mutated(shared, draw)
    elif part == 1 or draw.random() < 0.2:
        manifest = json_mutated(manifest, draw)
    if part >= 2:
        place = draw.randrange(len(chain))
        chain[place] = _segment_mutated(chain[place], draw)
    if not isinstance(manifest, dict):
        return {**files, MANIFEST: json.dumps(manifest).encode()}
    made, last = _relinked(chain)
    if chain and draw.random() < 0.9:
        manifest["last"] = last
    with contextlib.suppress(TensorFileError):
        if draw.random() < 0.7:
            manifest["shapes"] = {n: list(t.shape) for n, t in unpacked(shared).items()}
    manifest |= {"sha256": digest(shared), "bytes": len(shared)}
    return {
        MANIFEST: _sealed(manifest, draw),
        f"tensors-{digest(shared)[:16]}.safetensors": shared,
        **made,
    }


def _chain(files: Files, manifest: Any) -> list[bytes]:
    """The segments, the first one first."""
    found: list[bytes] = []
    pointer = manifest.get("last")
    while pointer is not None:
        found.append(files[f"tasks-{pointer['sha256'][:16]}.safetensors"])
        pointer = _about(found[-1])[1]["before"]
    return found[::-1]


def _about(segment: bytes) -> tuple[dict[str, torch.Tensor], Any]:
    """Tensors and facts of a segment."""
    tensors = unpacked(segment)
    return tensors, json.loads(tensors.pop("about").numpy().tobytes())


def _segment_mutated(segment: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.5:
        return _tensors_mutated(segment, draw)
    tensors, facts = _about(segment)
    text = _as_text(json_mutated(facts, draw), draw)
    return packed({**tensors, "about": torch.frombuffer(bytearray(text), dtype=torch.uint8)})


def _relinked(chain: list[bytes]) -> tuple[Files, Any]:
    """The segments with right checksums of those before them, as far as they can be read."""
    files, before = {}, None
    for segment in chain:
        with contextlib.suppress(TensorFileError, KeyError, ValueError, RecursionError):
            tensors, facts = _about(segment)
            if isinstance(facts, dict) and facts.get("before", 0) != before:
                facts["before"] = before
                text = json.dumps(facts).encode()
                about = torch.frombuffer(bytearray(text), dtype=torch.uint8)
                segment = packed({**tensors, "about": about})
        before = {"bytes": len(segment), "sha256": digest(segment)}
        files[f"tasks-{before['sha256'][:16]}.safetensors"] = segment
    return files, before


def _sealed(manifest: Any, draw: random.Random) -> bytes:
    manifest["seal"] = ""
    try:
        manifest["seal"] = digest(msgspec.json.encode(manifest))
    except (msgspec.MsgspecError, UnicodeEncodeError, OverflowError):
        return json.dumps(manifest).encode()
    return _as_text(manifest, draw)


def _as_text(value: Any, draw: random.Random) -> bytes:
    """As JSON, and at times with a name twice or nested far too deep."""
    text = json.dumps(value)
    way = draw.randrange(30)
    if way == 0 and text.startswith("{") and value:
        name = draw.choice(sorted(value))
        text = f"{{{json.dumps(name)}: {json.dumps(draw.choice(HOSTILE))}, {text[1:]}"
    elif way == 1:
        depth = draw.choice([50, 1000, 100_000])
        text = text.replace("[]", "[" * depth + "]" * depth, 1)
    elif way == 2:
        text = text.replace("0", "1e999", 1)
    return text.encode()


def reseal_run(files: Files, draw: random.Random) -> Files:
    value = json.loads(files["run.json"])
    for _ in range(draw.choice([1, 1, 2])):
        value = json_mutated(value, draw)
    return {"run.json": _as_text(value, draw)}


def idx_mutated(files: Files, draw: random.Random) -> Files:
    """Another magic number, other sizes, or more or fewer of these."""
    ((name, content),) = files.items()
    plain = bytearray(gzip.decompress(content) if name.endswith("gz") else content)
    for _ in range(draw.choice([1, 2, 3])):
        way = draw.randrange(4)
        if way == 3:
            plain = bytearray(_bytes_mutated(plain, draw))
        elif way == 0:
            plain[2:4] = bytes([draw.choice([8, 9, 11, 13, 14, 0]), draw.choice([0, 1, 3, 4, 255])])
        elif way == 1:
            size = draw.choice([0, 1, 2, 5, 1 << 16, 1 << 31, _number(draw, 32)])
            place = 4 + 4 * draw.randrange(3)
            plain[place : place + 4] = struct.pack(">I", size)
        else:
            plain[4:4] = struct.pack(">I", draw.choice([0, 1, 2, _number(draw, 32)]))
    return {name: gzip.compress(bytes(plain), mtime=0) if name.endswith("gz") else bytes(plain)}


def _number(draw: random.Random, bits: int) -> int:
    """Of any magnitude."""
    return draw.getrandbits(draw.randrange(bits + 1))


def npz_mutated(files: Files, draw: random.Random) -> Files:
    """The header of an array says something else, or an array has another name."""
    ((name, content),) = files.items()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        arrays = {member: archive.read(member) for member in archive.namelist()}
    member = draw.choice(sorted(arrays))
    if draw.random() < 0.2:
        arrays[draw.choice(["x.npy", "y.npy", "z.npy", "../x.npy", "x"])] = arrays.pop(member)
    else:
        arrays[member] = _npy_mutated(arrays[member], draw)
    buffer = io.BytesIO()
    way = draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(buffer, "w", way) as archive:
        for member, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(member), array, way)
    return {name: buffer.getvalue()}


def _npy_mutated(array: bytes, draw: random.Random) -> bytes:
    (length,) = struct.unpack("<H", array[8:10])
    body = array[10 + length :]
    types = ["<f8", ">f4", "<f2", "|S0", "|S9", "<U3", "|O", "|V0", "<c16", "|b1", "<M8[s]", "<i8"]
    sizes = [0, 1, 2, 6, 12, 36, 1 << 31, 1 << 62, -1]
    dims = range(draw.choice([0, 1, 2, 3, 40]))
    shape = tuple(draw.choice([*sizes, _number(draw, 64)]) for _ in dims)
    header = repr(
        {"descr": draw.choice(types), "fortran_order": draw.random() < 0.5, "shape": shape}
    )
    if draw.random() < 0.1:
        header = draw.choice(["(" * 9000, "{}", header[:-5], header.replace("shape", "shapes")])
    text = header.encode()[:65000] + b"\n"
    if draw.random() < 0.3:
        body = _bytes_mutated(bytearray(body), draw)
    return array[:8] + struct.pack("<H", len(text)) + text + body


def reseal_checkpoint(files: Files, draw: random.Random) -> Files:
    index = json.loads(files[FILE])
    if draw.random() < 0.4:
        return _page_mutated(files, index, draw)
    index = json_mutated(index, draw)
    with contextlib.suppress(msgspec.MsgspecError, UnicodeEncodeError):
        index = msgspec.to_builtins(msgspec.convert(index, journal._Index).sealed())
    return {**files, FILE: json.dumps(index).encode()}


def _page_mutated(files: Files, index: Any, draw: random.Random) -> Files:
    name = next(name for name in files if name != FILE)
    content = _tensors_mutated(files[name], draw)
    index["entries"][0] |= {"tensors": digest(content), "bytes": len(content)}
    sealed = msgspec.convert(index, journal._Index).sealed()
    return {FILE: msgspec.json.encode(sealed), f"training-{digest(content)}.safetensors": content}


def _tensors_mutated(content: bytes, draw: random.Random) -> bytes:
    """Of safetensors: the header, or one of the tensors."""
    way = draw.randrange(8)
    if way < 2:
        return draw.choice([_header_mutated, _some_flipped])(content, draw)
    tensors = unpacked(content)
    names = sorted(tensors.keys() - {"about"})
    if not names:
        return content
    name = draw.choice(names)
    if way == 2:
        tensors[draw.choice([*names, "", "task/3/head.bias", f"{name}x"])] = tensors.pop(name)
    elif way == 3:
        del tensors[name]
    else:
        tensors[name] = _tensor_mutated(tensors[name], draw)
    return packed(tensors)


def _tensor_mutated(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    """Another shape, another type, or other numbers."""
    way = draw.randrange(6)
    if way == 0 and tensor.ndim:
        return tensor[: draw.randrange(len(tensor) + 1)]
    if way == 1 and tensor.ndim:
        return torch.cat([tensor, tensor[: draw.choice([1, 2])]])
    if way == 2 and tensor.ndim:
        return draw.choice([tensor.reshape(-1), tensor[None], tensor.movedim(0, -1)])
    if way == 3:
        types = [torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool]
        return tensor.to(draw.choice(types))
    filled = tensor.clone()
    numbers = [0, 1, 2, 3, 255, -1, 1e-40, 1e30, -3e38, float("nan"), float("inf")]
    if filled.numel():
        place = draw.choice([slice(None), draw.randrange(filled.numel())])
        number = draw.choice(numbers)
        if not filled.is_floating_point():
            number = draw.choice([0, 1, 2, 255])
        filled.view(-1)[place] = number
    return filled


def _header_mutated(content: bytes, draw: random.Random) -> bytes:
    """Of safetensors: the length of the header is right again."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json_mutated(json.loads(content[8 : 8 + length]), draw)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]
