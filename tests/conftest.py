"""For all tests: properties take the time they take, and tiny networks are fastest on one thread.

That this file is here also puts `builders` within reach of the tests in folders.
"""

import torch
from hypothesis import settings

settings.register_profile("lifelong", deadline=None)
settings.load_profile("lifelong")
torch.set_num_threads(1)
