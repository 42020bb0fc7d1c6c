"""How answers read and look: for every kind a module with `line` (of `repr`), `parts`
(of the command and of notebooks) and, where there is something to draw, `figure`."""
