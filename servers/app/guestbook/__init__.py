"""The guest book: a page with a form and the newest entries, which are kept in a database."""
