"""Views of results: for every kind of result a module with `line` (of `repr`), `blocks`
(of the command, notebooks and pages) and, if there is something to draw, `charts`.
`SCOPE`, or `scope` of a result, names what a page's power includes, where that is
more than GPU boards."""
