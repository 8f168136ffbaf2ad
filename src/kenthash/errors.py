"""Errors that are the user's to mend. Each is one line: what is wrong, where, and what to do.

The command line prints them without a trace and exits with `exit_code`; anything else that escapes is a bug of
ours and keeps its trace.
"""


class KenthashError(Exception):
    """Something outside kenthash is wrong: a file, a value, a missing component."""

    exit_code = 1


class UsageError(KenthashError):
    """The command or call was misused: an unknown name, options that do not go together."""

    exit_code = 2


class DataError(KenthashError):
    """A data set, a feature pack or one of their files is missing, damaged or disagrees with itself."""
