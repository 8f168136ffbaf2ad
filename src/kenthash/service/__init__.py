"""The HTTP service: search, items and pictures of an index for programs, and a page for people.

A request passes `middleware` (access and limits) and one route of `routes_search`, `routes_items` or `routes_about`,
which uses the index and the model in `state`. `server` runs the application of `app` as `settings` say.
"""
