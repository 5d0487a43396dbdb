"""Hardware and process: device, CPUs, cached properties, version."""
