"""What a model attends to and how sure it is; `clearhead.explain` is the way in."""
