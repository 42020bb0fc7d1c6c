"""How answers read and look: for every kind a module with `line` (of `repr`), `blocks`
(of the command, of notebooks and pages) and, where there is something to draw,
`charts`; `SCOPE` says what the watts of a page are of, where they are not modelled ones
of GPU boards alone."""
