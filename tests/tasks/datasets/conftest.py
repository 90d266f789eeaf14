"""Small files in the published formats, and the real ones where they are."""

import gc
import gzip
import os
import threading
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from small_files import idx

from lifelong.tasks.datasets.mnist import FILES


@pytest.fixture
def mnist_dir(tmp_path):
    """A data directory with an MNIST of 40 and 20 images a digit, gzipped."""
    rng = np.random.default_rng(0)
    directory = tmp_path / "data" / "mnist"
    directory.mkdir(parents=True)
    for prefix, each in (("train", 40), ("t10k", 20)):
        labels = rng.permutation(np.arange(10).repeat(each))
        images = rng.integers(0, 256, (len(labels), 28, 28))
        images[:, :4] = labels[:, None, None]
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            (directory / f"{prefix}-{name}-ubyte.gz").write_bytes(gzip.compress(idx(array)))
    assert {path.name for path in directory.iterdir()} == {f"{name}.gz" for name in FILES}
    return directory.parent


@pytest.fixture
def real_data():
    """The directory with the publishers' files."""
    directory = os.environ.get("LIFELONG_DATA")
    if not directory or not Path(directory).is_dir():
        pytest.skip("no real files: LIFELONG_DATA does not name a directory")
    return Path(directory)


@pytest.fixture
def real_mnist(real_data):
    if not (real_data / "mnist").is_dir():
        pytest.skip("no MNIST files in $LIFELONG_DATA/mnist")
    return real_data


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing among the tests' dots."""


@dataclass
class Site:
    url: str
    root: Path


def pytest_collection_modifyitems(items):
    for item in items:
        if "network" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture
def network(monkeypatch):
    """Talk to this machine only, and collect here the sockets that requests leaves open."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield
    gc.collect()


@pytest.fixture
def site(tmp_path, network):  # noqa: ARG001
    """A publisher's site on this machine."""
    root = tmp_path / "site"
    root.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield Site(f"http://127.0.0.1:{server.server_port}", root)
    server.shutdown()
    thread.join()
    server.server_close()
