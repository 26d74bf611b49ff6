"""Readers of a trial's raw files: the points of its requests (rows), and the state of its containers (observation)."""

POINTS = "points*.json.gz"
"""The names of the files with a trial's raw points. Each file has the requests of one generator."""
SERVED = "served-*.csv"
"""The names of the files that say which worker served which request of somebody's own application."""
CLIENT = "points-client"
"""The generator that sends directly to the server, not through the balancer: a script of clients/. Others are k6."""
