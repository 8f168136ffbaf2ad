"""The generated set: pictures of OpenMoji drawings in places, with captions and labels.

`contents` draws what is in a scene, `layout` where it stands, `compose` paints it, `captions` tells it, and `generate`
does so for any number of items. Classes, places and phrases are YAML files beside this one.
"""

from kenthash.data.scenes.generate import make_scenes

__all__ = ["make_scenes"]
