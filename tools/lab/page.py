"""A page of the documentation of which a command writes a part."""

#: Behind what a command has written; before it stands a mark of the command's own.
END = "<!-- end -->"


def within(page, mark, text):
    """The page, with the text in the place of what an earlier run wrote there."""
    before, rest = page.split(mark)
    _, after = rest.split(END, maxsplit=1)
    return f"{before}{mark}\n\n{text}\n{END}{after}"
