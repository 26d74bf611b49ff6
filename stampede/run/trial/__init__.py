"""Run trials in containers: write the files for Compose, start and remove containers.

Only this package starts containers that measure.
"""
