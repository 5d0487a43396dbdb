"""Files of other libraries, read and checked: settings, tensors, pickles whose code is never run, YAML."""
