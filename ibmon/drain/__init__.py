"""Keeping new jobs away from an unfit node, and giving it back: policy (pure), reconcile, a file a scheduler."""
