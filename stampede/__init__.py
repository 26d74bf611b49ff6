"""The command line, and the runner that turns an experiment file into measurements and verdicts."""
