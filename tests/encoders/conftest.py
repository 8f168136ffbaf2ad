"""torchvision is imported the way the encoders do, before a test module imports open_clip."""

from kenthash.encoders.torchvision_shim import import_torchvision

import_torchvision()
