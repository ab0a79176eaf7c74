from twice import reference  # noqa: F401
