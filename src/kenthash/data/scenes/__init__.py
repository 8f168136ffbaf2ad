"""The generated set: pictures of OpenMoji drawings in places, with captions and labels.

`scene` draws what is in a scene and where it stands, `compose` paints it, `captions` describes it, and `generate` does
so for any number of items. Classes, places and phrases are YAML files beside this one, which `loading` reads.
"""

from kenthash.data.scenes.generate import make_scenes

__all__ = ["make_scenes"]
