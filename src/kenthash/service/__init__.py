"""The HTTP service: search, items and pictures of an index for programs, and the page for people.

`settings` says what is allowed, `gate` stands before every request, `app` puts the routes together, `server` runs them.
"""
