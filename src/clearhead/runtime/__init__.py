"""The processor and the process: device, CPUs, values computed once, version."""
