"""The names of the files in a trial's folder that hold what was measured."""

POINTS = "points*.json.gz"
"""The names of the files with a trial's raw points. Each file has the requests of one generator."""
SERVED = "served-*.csv"
"""The names of the files that say which worker served which request of somebody's own application."""
ALONE = "alone.json"
"""The file of a trial that has the response times of single requests before the load, in ms, by class."""
OBSERVATIONS = ("*.before.txt", "*.after.txt")
"""The names of the files with observations of containers."""
GENERATOR = "k6-processor*.txt"
"""The names of the files that say how long each k6 waited for a processor."""
