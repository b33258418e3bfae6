"""The one exception that is meant for the person at the keyboard."""


class CotextError(Exception):
    """Something the user can put right: says what is wrong, where, and what to do.

    The command line prints the message alone, without a traceback, and exits with code 2.
    """
