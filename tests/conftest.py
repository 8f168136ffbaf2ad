"""Shared by all tests. The modules beside this file (packs, components) can be imported from every test.

Two test processes share two cores, and the tensors here are small: one thread each, or they spend their time waiting
for each other. Set before torch is imported, and inherited by the commands that tests start.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
