"""One trial in containers: what Compose gets, its containers, several side by side, and what is left behind.

Only this package starts containers that measure.
"""
