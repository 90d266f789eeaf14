"""Models in the form that they had before there were segments."""

from pathlib import Path

import msgspec

from lifelong.persistence.files import digest, packed
from lifelong.persistence.loading import _files
from lifelong.persistence.manifest import MANIFEST, TENSOR_FILES, WHOLE


def in_one_file(path: Path) -> Path:
    """A saved model as version 6 wrote it: all facts in the manifest, all tensors in one file."""
    found = _files(path)
    content = packed(found.tensors)
    manifest = msgspec.structs.replace(
        found.manifest,
        version=WHOLE,
        count=0,
        last=None,
        shapes={name: list(tensor.shape) for name, tensor in found.tensors.items()},
        bytes=len(content),
        sha256=digest(content),
    ).sealed()
    for pattern in TENSOR_FILES:
        for file in path.glob(pattern):
            file.unlink()
    (path / manifest.file).write_bytes(content)
    (path / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return path
