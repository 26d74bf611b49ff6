"""Somebody's own application: measured as it is served today and in other ways, under the requests that it gets."""
