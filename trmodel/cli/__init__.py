"""The command line: one module per command, each a call of one function of `trmodel.api`.

Modules of this package import nothing heavy at the top, so that help and errors come at once.
"""
