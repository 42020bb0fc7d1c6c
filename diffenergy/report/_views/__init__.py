"""How answers read and look: for every kind a module with `line` (of `repr`), `blocks`
(of the command, of notebooks and pages) and, where there is something to draw,
`charts`; `SCOPE` says what the watts of a page are of, where that is more than GPU
boards alone."""
