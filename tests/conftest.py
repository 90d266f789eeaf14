"""For all tests: properties take the time they take, and tiny networks are fastest on one thread.

That this file is here also puts `builders` within reach of the tests in folders.
"""

import os

# Virtual machines announce matrix instructions that end a process; float32 never uses them.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from hypothesis import settings

settings.register_profile("lifelong", deadline=None)
settings.load_profile("lifelong")
torch.set_num_threads(1)
