"""The part that is kept after training: two hash heads, and the name of the encoder whose vectors they take."""

from kenthash.model.hasher import Hasher

__all__ = ["Hasher"]
