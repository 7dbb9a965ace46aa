"""The one kind of error that is the user's to mend."""


class InputError(ValueError):
    """Bad input, told in one sentence that names the file or parameter and what was expected.

    The command line prints the sentence and exits with code 2; nothing has been written by then.
    """


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, without its full stop, or the exception's name."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
