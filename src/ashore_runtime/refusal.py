"""How this package says no: one exception, one sentence."""


class Refused(ValueError):
    """Something that will not be loaded; the message is one sentence that says what is wrong with it."""
