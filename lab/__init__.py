"""The runner and its command line: from an experiment file to a verdict."""
