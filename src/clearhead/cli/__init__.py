"""The command line: a module for each command, and the options, checks and notices that commands share."""
