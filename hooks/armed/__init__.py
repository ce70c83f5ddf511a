"""A process that lets itself be attached to while it runs: it is armed at its start, and idle until it is contacted.

`stub` is what is in such a process from its start, `install` puts it there, `contact` is the side of the command,
`activation` does what was asked, in the process.
"""
