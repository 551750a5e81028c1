"""The name by which configs of older policies know the mirror."""

from genelab.mdp.mirror import augment

__all__ = ["augment"]
