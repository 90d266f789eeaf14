"""Finding, downloading and unpacking files."""

import hashlib
import io
import socket
import tarfile
import tempfile
import threading
import zipfile
from pathlib import Path

import pooch
import pytest

from lifelong.tasks.datasets.files import (
    DataError,
    Remote,
    are_published,
    data_directory,
    fetch,
    fetch_archive,
    present,
)

NOWHERE = "http://127.0.0.1:9"


def remote(site, name, content, digest=None):
    (site.root / name).write_bytes(content)
    return Remote(f"{site.url}/{name}", digest or f"md5:{hashlib.md5(content).hexdigest()}")


def test_the_directory_given_wins_then_the_variable_then_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LIFELONG_DATA", str(tmp_path / "variable"))
    assert data_directory(tmp_path / "given") == tmp_path / "given"
    assert data_directory() == tmp_path / "variable"
    monkeypatch.delenv("LIFELONG_DATA")
    assert data_directory() == Path(pooch.os_cache("lifelong"))


def test_present_takes_the_first_name_that_is_a_file(tmp_path):
    (tmp_path / "b").write_text("b")
    (tmp_path / "a").mkdir()
    assert present(tmp_path, "a", "b") == tmp_path / "b"
    assert present(tmp_path, "c") is None


def test_a_file_is_downloaded_once_and_kept(site, tmp_path):
    source = remote(site, "x.bin", b"content")
    place = fetch("set", tmp_path / "new" / "dir", "x.bin", source)
    assert place.read_bytes() == b"content"
    (site.root / "x.bin").unlink()
    assert fetch("set", tmp_path / "new" / "dir", "x.bin", source) == place
    assert [path.name for path in place.parent.iterdir()] == ["x.bin"]


def test_a_hash_that_differs_is_refused_and_nothing_stays(site, tmp_path):
    wrong = remote(site, "x.bin", b"tampered", "sha256:" + "0" * 64)
    with pytest.raises(DataError, match="does not have the published hash sha256:0000"):
        fetch("set", tmp_path / "data", "x.bin", wrong)
    assert list((tmp_path / "data").iterdir()) == []


def test_a_file_absent_at_the_publishers_is_named_with_its_place(site, tmp_path):
    gone = Remote(f"{site.url}/gone.bin", "md5:" + "0" * 32)
    with pytest.raises(DataError, match=r"set needs gone.bin in .*data, and could not .*404") as e:
        fetch("set", tmp_path / "data", "gone.bin", gone)
    for help_ in ("Put the files there", "data_dir=", "$LIFELONG_DATA", "'digits'"):
        assert help_ in str(e.value)
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.usefixtures("network")
def test_offline_is_an_error_that_helps(tmp_path):
    with socket.socket() as reserved:  # bound but not listening: connections are refused
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/x.bin"
        with pytest.raises(DataError, match=r"set needs x.bin in .*could not be downloaded from"):
            fetch("set", tmp_path, "x.bin", Remote(url, "md5:" + "0" * 32))


@pytest.mark.usefixtures("network")
def test_a_download_that_breaks_off_leaves_nothing(tmp_path):
    def answer_half(listening):
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        thread = threading.Thread(target=answer_half, args=(listening,))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/x.bin"
        whole = hashlib.md5(b"half and the rest").hexdigest()
        with pytest.raises(DataError, match=r"x\.bin"):
            fetch("set", tmp_path, "x.bin", Remote(url, f"md5:{whole}"))
        thread.join()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_refused_before_the_download(tmp_path, monkeypatch):
    never = Remote("http://127.0.0.1:9/x.bin", "md5:" + "0" * 32)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write downloaded files to .*file/data"):
        fetch("set", tmp_path / "file" / "data", "x.bin", never)

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(DataError, match=r"cannot write .*Permission denied.*data_dir="):
        fetch("set", tmp_path, "x.bin", never)


def tar_of(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zip_of(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(("pack", "name"), [(tar_of, "a.tar.gz"), (zip_of, "a.zip")])
def test_only_the_members_asked_are_taken_from_an_archive(site, tmp_path, pack, name):
    content = pack({"top/a.bin": b"A", "top/deep/b.txt": b"B", "../evil": b"E", "top/c": b"C"})
    directory = tmp_path / "data" / "top"
    members = {"a.bin": "top/a.bin", "deep/b.txt": "top/deep/b.txt"}
    fetch_archive("set", directory, members, remote(site, name, content))
    found = {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}
    assert found == {"a.bin", "deep/b.txt", f"{name}.sha256"}
    assert are_published(directory, members, remote(site, name, content))
    assert (directory / "deep/b.txt").read_bytes() == b"B"
    assert not (tmp_path / "data" / "evil").exists()
    (site.root / name).unlink()
    fetch_archive("set", directory, members, Remote("http://127.0.0.1:9/", "md5:0"))  # all there


def test_an_archive_put_there_by_hand_is_used_and_kept(tmp_path):
    content = zip_of({"top/a.bin": b"A"})
    (tmp_path / "a.zip").write_bytes(content)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    fetch_archive("set", tmp_path, {"a.bin": "top/a.bin"}, Remote(f"{NOWHERE}/a.zip", digest))
    assert (tmp_path / "a.bin").read_bytes() == b"A"
    assert (tmp_path / "a.zip").exists()


def test_what_is_noted_of_an_archive_is_what_sha256sum_checks(tmp_path):
    content = zip_of({"top/a.bin": b"A", "top/b.bin": b"B"})
    (tmp_path / "a.zip").write_bytes(content)
    published = Remote(f"{NOWHERE}/a.zip", f"md5:{hashlib.md5(content).hexdigest()}")
    for name in ("a.bin", "b.bin"):  # one after another: the second adds to what is noted
        fetch_archive("set", tmp_path, {name: f"top/{name}"}, published)
    lines = (tmp_path / "a.zip.sha256").read_text().splitlines()
    digests = [hashlib.sha256(letter).hexdigest() for letter in (b"A", b"B")]
    assert lines == [f"{digests[0]}  a.bin", f"{digests[1]}  b.bin"]
    assert are_published(tmp_path, ["a.bin", "b.bin"], published)
    (tmp_path / "b.bin").write_bytes(b"another")
    assert are_published(tmp_path, ["a.bin"], published)
    assert not are_published(tmp_path, ["a.bin", "b.bin"], published)


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_an_archive_put_there_that_is_not_the_published_one_is_not_unpacked(algorithm, tmp_path):
    (tmp_path / "a.zip").write_bytes(zip_of({"top/a.bin": b"A"}))
    other = Remote(f"{NOWHERE}/a.zip", f"{algorithm}:{'0' * 32}")
    with pytest.raises(
        DataError, match=rf"a.zip has the {algorithm} \w+, but the published one is"
    ):
        fetch_archive("set", tmp_path, {"a.bin": "top/a.bin"}, other)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_a_member_that_inflates_beyond_what_is_plausible_is_refused(pack, tmp_path, monkeypatch):
    monkeypatch.setattr("lifelong.tasks.datasets.files.ALWAYS_INFLATED", 1000)
    content = pack({"top/a.bin": bytes(1_000_000)})
    name = "a.zip" if pack is zip_of else "a.tar.gz"
    (tmp_path / name).write_bytes(content)
    published = Remote(f"{NOWHERE}/{name}", f"md5:{hashlib.md5(content).hexdigest()}")
    with pytest.raises(DataError, match=r"announces [0-9,]+ bytes of data, but"):
        fetch_archive("set", tmp_path, {"a.bin": "top/a.bin"}, published)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_archive_without_the_member_is_refused_and_not_kept(site, tmp_path):
    source = remote(site, "a.tar.gz", tar_of({"other": b"A"}))
    with pytest.raises(DataError, match=r"set: cannot take \['a.bin'\] from .*a.tar.gz"):
        fetch_archive("set", tmp_path / "data", {"a.bin": "top/a.bin"}, source)
    assert list((tmp_path / "data").iterdir()) == []
