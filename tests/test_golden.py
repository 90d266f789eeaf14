"""Every number of small runs is what it was, up to rounding, which differs between processors."""

import torch
from safetensors.torch import load_file

from golden.runs import FILE, golden


def test_every_number_is_what_it_was():
    stored, found = load_file(FILE), golden()
    assert found.keys() == stored.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, stored[name], rtol=1e-3, atol=1e-4, msg=name)
