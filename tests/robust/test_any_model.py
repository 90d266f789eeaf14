"""A model of whatever method, opened by who does not know which."""

import os

import pytest

from lifelong.learners.registry import load_model
from lifelong.persistence.manifest import MANIFEST, ModelFileError


def test_a_pipe_in_the_place_of_a_manifest_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / MANIFEST)
    with pytest.raises(ModelFileError, match="not an ordinary file"):
        load_model(tmp_path)
