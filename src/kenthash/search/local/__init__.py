"""The local engine: one SQLite file as the truth, a code file beside it for speed, exact search on all cores.

`local_engine` is the engine; `store` with `schema`, `sqlite` and `idorder` is the SQLite file, and `fulltext` the words
in it; `codefile` is the code file, and `snapshot` the state of both that is searched; `checksums` are those of both
files. `scan`, `mih` and their compiled `kernels` and `weighted_kernels` are the search itself; `maintenance` has the
commands on whole indexes, `verify` and `backup`.
"""
