"""Output grammars: what a request's text must look like, as one more `RowProcessor`.

`spec` says what is asked for, `compiler` turns it into processors. Nothing here parses an answer
or knows HTTP; importing this package alone imports neither torch nor xgrammar.
"""
