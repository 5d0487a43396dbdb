"""What a model attends to and how sure it is; start with `clearhead.explain`."""
