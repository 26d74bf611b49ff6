"""What a trial left, read: the points of its requests (rows), and what its containers said (observation)."""

POINTS = "points*.json.gz"
"""The names of a trial's raw points. Each file has the requests of one generator."""
CLIENT = "points-client"
"""The generator that sends past the balancer (a script of clients/); all other generators are k6."""
