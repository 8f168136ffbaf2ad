"""Folders of pictures in an index: which files there are, what of them changed, and the index that a folder owns."""
