"""What queueing predicts: a simulator of workers that have threads and queues of their own.

Nothing here knows the lab. ``model`` says what can be simulated, and ``simulate`` does it.
"""
